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

// Throws ErrorCode::usage for more devices than can be simulated in sensible time.
void check_simulated(std::int64_t devices);

// Throws ErrorCode::process, naming who differs from the first one and how, unless all processes
// are of the same program, config and corpus, and check replicas or do not.
void expect_same_start(Processes& processes, const TrainConfig& config, std::uint64_t corpus,
                       bool check_replicas);

// How an error is told, from any thread: prints it and returns the exit status.
using Report = int (*)(const Error& error);
// To be called first.
void set_report(Report report);

// The end of the program: waits for the other processes, and returns `status`.
int leave_job(int status);
// The same after an error, which is told, by one process of the job alone. Does not return if not
// all of them have met it.
int leave_job(const Error& error);

}  // namespace dew::cli
