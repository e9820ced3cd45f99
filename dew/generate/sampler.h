// Choosing the next token from scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dew/base/rng.h"

namespace dew {

// First temperature, then top_k, then top_p, each on what the one before has left.
struct Sampling {
  double temperature = 1;  // divides scores; 0: always the largest, of equal ones the first
  std::int64_t top_k = 0;  // keeps so many of the most probable, of equal ones the first; 0: all
  double top_p = 1;        // keeps the fewest of the most probable that have that much together
  std::uint64_t seed = 0;
};

// Throws ErrorCode::usage: temperature and top_k are 0 or more and finite, top_p is above 0 and at
// most 1.
void validate(const Sampling& sampling);

class Sampler {
 public:
  // `stream` tells apart texts that are made side by side.
  explicit Sampler(const Sampling& sampling, std::uint32_t stream = 0);

  // The next id. The same seed, stream, number of calls before and scores give the same id. Throws
  // ErrorCode::non_finite if a score is not finite. REQUIRES: there are scores.
  std::int32_t next(std::span<const float> scores);

 private:
  struct Candidate {
    double weight = 0;  // exp((score - largest) / temperature)
    std::int32_t id = 0;
  };
  void keep_most_probable();
  void keep_nucleus();
  double uniform();

  Sampling sampling_;
  RandomKey key_;
  std::uint64_t drawn_ = 0;
  std::vector<Candidate> candidates_, ordered_;
};

}  // namespace dew
