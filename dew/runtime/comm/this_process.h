// The job that this process belongs to.
#pragma once

#include "dew/runtime/comm/mpi_job.h"

namespace dew::comm {

// Joins the other processes where a launcher has started several; a later call changes the options.
// Null: this process is alone. The job ends when the program does, if nobody ends it before.
MpiJob* join_job(MpiOptions options);

// The job that was joined; null before, and for a process that is alone.
MpiJob* joined_job();

}  // namespace dew::comm
