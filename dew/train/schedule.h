// The learning rate: a pure function of how many updates were committed before. There is no state
// to save, and skipped steps do not move it.
#pragma once

#include <cstdint>
#include <string>

namespace dew {

// Names are the keys of the section [schedule] of a config.
struct ScheduleConfig {
  // After the warm-up: "constant", "linear" (to the final rate), "warmup_cosine" (half a cosine to
  // it), "warmup_stable_decay" (constant, then linear to it over the last updates).
  std::string name = "constant";
  std::int64_t warmup_steps = 0;
  double final_fraction = 0;    // final rate / peak; the last update has it (not "constant")
  double decay_fraction = 0.1;  // share of all updates that decays (warmup_stable_decay)

  bool operator==(const ScheduleConfig&) const = default;
};

// Throws ErrorCode::usage, with the values and what would work.
void validate(const ScheduleConfig& schedule);

// The rate of the update that comes after `committed` others. Update u = committed + 1 of a warm-up
// of w has peak * u / w; update w has the peak, update `total_steps` the final rate, and so has
// every later one. Example: warmup_cosine, peak 1, final_fraction 0.1, no warm-up, 20 steps: update
// 10 has 0.55, update 20 has 0.1.
// REQUIRES: a valid schedule, committed >= 0.
double rate(const ScheduleConfig& schedule, double peak, std::int64_t total_steps,
            std::int64_t committed);

}  // namespace dew
