#include "dew/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// How much of the way from peak to final rate is gone after update u, the decay being that of the
// updates after `begin` up to `total`.
double progress(std::int64_t u, std::int64_t begin, std::int64_t total) {
  if (u <= begin) return 0;  // also where a warm-up ends at the last update or later
  if (u >= total) return 1;
  return static_cast<double>(u - begin) / static_cast<double>(total - begin);
}

std::int64_t decay_begin(const ScheduleConfig& s, std::int64_t total) {
  if (s.name != "warmup_stable_decay") return s.warmup_steps;
  const double decay = std::ceil(s.decay_fraction * static_cast<double>(total));
  return std::max(s.warmup_steps, total - static_cast<std::int64_t>(decay));
}

void check_fraction(const char* key, double value) {
  if (value >= 0 && value <= 1) return;
  fail(ErrorCode::usage, format("schedule.{} = {}, but it must be from 0 to 1", key, value));
}

}  // namespace

void validate(const ScheduleConfig& s) {
  if (s.name != "constant" && s.name != "linear" && s.name != "warmup_cosine" &&
      s.name != "warmup_stable_decay") {
    fail(ErrorCode::usage, format("schedule.name = \"{}\", but it must be one of constant, linear, "
                                  "warmup_cosine, warmup_stable_decay",
                                  s.name));
  }
  if (s.warmup_steps < 0) {
    fail(ErrorCode::usage,
         format("schedule.warmup_steps = {}, but it must be 0 or more", s.warmup_steps));
  }
  check_fraction("final_fraction", s.final_fraction);
  check_fraction("decay_fraction", s.decay_fraction);
}

double rate(const ScheduleConfig& s, double peak, std::int64_t total_steps,
            std::int64_t committed) {
  const std::int64_t u = committed + 1;
  if (u < s.warmup_steps) {
    return peak * (static_cast<double>(u) / static_cast<double>(s.warmup_steps));
  }
  if (s.name == "constant") return peak;
  double gone = progress(u, decay_begin(s, total_steps), total_steps);
  if (s.name == "warmup_cosine") gone = 0.5 * (1 - std::cos(std::numbers::pi * gone));
  return std::lerp(peak, peak * s.final_fraction, gone);  // exact at both ends
}

}  // namespace dew
