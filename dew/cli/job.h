// The processes that a command runs in.
#pragma once

#include "dew/base/error.h"
#include "dew/runtime/processes.h"
#include "dew/train/config.h"

namespace dew::cli {

// Joins the others that a launcher has started, with these time-outs; alone it is one_process().
Processes& join_processes(const CommConfig& comm = {});

// Throws ErrorCode::usage if a launcher has started several.
void require_one_process(const std::string& command);

// Does this process speak for all? The first one does, and one that is alone.
bool speaks();
// "[rank 3] " of one of several, nothing alone.
std::string rank_prefix();

// Devices over all processes: one each for "cpu". Throws ErrorCode::usage for what cannot be dealt
// to them.
std::int64_t device_count(const DevicesConfig& devices, int processes);

// Throws ErrorCode::process, naming who differs from the first one and how, unless all processes
// are of the same program, config and corpus.
void expect_same_start(Processes& processes, const TrainConfig& config, std::uint64_t corpus);

// The end of the program, where it runs in several processes: waits for the others and returns
// `status`.
int leave_job(int status);
// The same after an error; tells what is to be told, alone too. Does not return if the error is
// not that of all processes. `report` prints and returns the status.
int leave_job_with(const Error& error, int (*report)(const Error&));

}  // namespace dew::cli
