// Where the time of a step goes: a trace as a table for people and as a file for a trace viewer.
#pragma once

#include <string>

#include "dew/runtime/trace.h"

namespace dew {

// One line for each program and op, those that take most first: share of the threads' time, ms and
// calls a run, and the rates of what their formulas ask for (plan/cost.h). The last lines are the
// time that threads waited for each other, and what lay outside of steps. No line if nothing ran.
std::string profile_table(const Trace& trace);

// JSON in the Trace Event Format, which Perfetto and chrome://tracing show: a row for each thread,
// an entry for each phase of a step with its flops and bytes. `process` tells several apart;
// `devices` is how many its threads stand for.
std::string trace_events(const Trace& trace, int process, std::int64_t devices);

}  // namespace dew
