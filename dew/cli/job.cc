#include "dew/cli/job.h"

#include <cstdlib>
#include <vector>

#include "dew/base/digest.h"
#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/cli/cli.h"
#include "dew/runtime/comm/launcher.h"
#include "dew/runtime/comm/this_process.h"

namespace dew::cli {
namespace {

Report tell = nullptr;
bool tried_to_join = false;  // MPI is initialised once, whatever comes of it

std::optional<comm::Launcher> launcher() {
  return comm::find_launcher([](const char* name) { return std::getenv(name); });
}

comm::MpiJob* join(const CommConfig& config) {
  tried_to_join = true;
  return comm::join_job({.start_timeout = config.start_timeout,
                         .step_timeout = config.step_timeout,
                         .stop_signal = stop_signal,
                         .report = [](const Error& error) { tell(error); }});
}

std::string digest_of_program() {
  const MappedFile program("/proc/self/exe", ErrorCode::process, Access::sequential);
  return digest_text(digest_of(program.bytes()));
}

// The first process whose text is not the first one's; -1 if all are equal.
int differing(const std::vector<std::string>& texts) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) return static_cast<int>(rank);
  }
  return -1;
}

[[noreturn]] void refuse(Processes& processes, int rank, const std::string& how) {
  fail(ErrorCode::process,
       format("{} differs from {}: {}", processes.name(rank), processes.name(0), how),
       "all processes must be given the same program, config and data");
}

std::string changes_between(const std::string& first, const std::string& other) {
  std::vector<std::string> changes;
  for (const ConfigChange& change :
       config_changes(parse_config(first, "the first config"), parse_config(other, "the config"))) {
    changes.push_back(format("{} is {}, not {}", change.key,
                             change.now.empty() ? "not set" : change.now,
                             change.before.empty() ? "not set" : change.before));
  }
  return format("{}", fmt::join(changes, "; "));
}

}  // namespace

Processes& join_processes(const CommConfig& config) {
  comm::MpiJob* job = join(config);
  return job != nullptr ? static_cast<Processes&>(*job) : one_process();
}

void require_one_process(const std::string& command) {
  const auto started = launcher();
  if (!started || started->processes == 1) return;
  const int count = join_processes().count();
  if (count == 1) return;
  fail(ErrorCode::usage,
       format("dew {} runs in one process, but {} has started {}", command, started->name, count),
       "dew train and dew eval run in several");
}

bool speaks() {
  const comm::MpiJob* job = comm::joined_job();
  return job == nullptr || job->rank() == 0;
}

std::string rank_prefix() {
  const comm::MpiJob* job = comm::joined_job();
  return job == nullptr ? std::string() : format("[rank {}] ", job->rank());
}

std::int64_t device_count(const DevicesConfig& devices, int processes) {
  std::vector<std::int64_t> each = devices.per_process;
  if (each.size() > 1 && std::ssize(each) != processes) {
    fail(ErrorCode::usage,
         format("devices.per_process lists {} processes, but there {}", each.size(),
                processes == 1 ? "is one" : format("are {}", processes)));
  }
  for (const std::int64_t n : each) {
    if (n == each.front()) continue;
    fail(ErrorCode::usage,
         format("devices.per_process = [{}]: processes with different numbers of devices are not "
                "built yet",
                fmt::join(each, ", ")),
         "give all the same number");
  }
  const bool one_each = devices.spec == "cpu";
  if (one_each) return processes * (each.empty() ? 1 : each.front());
  const std::int64_t all = *parse_devices(devices.spec);
  if (!each.empty() && each.front() * processes != all) {
    fail(ErrorCode::usage,
         format("devices.per_process = {} on {} process(es) makes {} devices, and devices.spec = "
                "\"{}\"",
                each.front(), processes, each.front() * processes, devices.spec));
  }
  if (all % processes != 0) {
    fail(ErrorCode::usage,
         format("{} devices cannot be dealt evenly to {} processes", all, processes),
         "the number of devices must be a multiple of the number of processes");
  }
  return all;
}

void check_simulated(std::int64_t devices) {
  constexpr std::int64_t kMost = 4096;
  if (devices <= kMost) return;
  fail(ErrorCode::usage, format("{} devices, but at most {} are simulated", devices, kMost),
       "dew dispatch and dew inspect MODEL take any number");
}

void expect_same_start(Processes& processes, const TrainConfig& config, std::uint64_t corpus,
                       bool check_replicas) {
  if (processes.count() == 1) return;
  const auto programs = processes.exchange(digest_of_program(), "the programs' digests");
  if (const int rank = differing(programs); rank >= 0) refuse(processes, rank, "another program");
  const auto configs = processes.exchange(to_toml(config), "the configs");
  if (const int rank = differing(configs); rank >= 0)
    refuse(processes, rank, changes_between(configs[0], configs[static_cast<std::size_t>(rank)]));
  const std::string checks = check_replicas ? "with" : "without";
  const auto flags = processes.exchange(checks, "who checks replicas");
  if (const int rank = differing(flags); rank >= 0)
    refuse(processes, rank, flags[static_cast<std::size_t>(rank)] + " --check-replicas");
  const auto corpora = processes.exchange(digest_text(corpus), "the digests of the data");
  if (const int rank = differing(corpora); rank >= 0) {
    refuse(processes, rank,
           format("the digest of '{}' is {}, not {}", config.data.path,
                  corpora[static_cast<std::size_t>(rank)], corpora[0]));
  }
}

int leave_job(int status) {
  if (comm::MpiJob* job = comm::joined_job()) job->end();
  return status;
}

int leave_job(const Error& error) {
  comm::MpiJob* job = comm::joined_job();
  if (job == nullptr && launcher() && !tried_to_join) job = join({});
  return job == nullptr ? tell(error) : job->end_with(error);
}

void set_report(Report report) { tell = report; }

}  // namespace dew::cli
