#include "dew/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

std::size_t largest(std::span<const float> scores) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i])) {
      fail(ErrorCode::non_finite, format("the model's score of id {} is {}", i, scores[i]),
           "its parameters, or sums of them, are not finite");
    }
    if (scores[i] > scores[best]) best = i;
  }
  return best;
}

}  // namespace

void validate(const Sampling& s) {
  if (!(s.temperature >= 0) || !std::isfinite(s.temperature)) {
    fail(ErrorCode::usage,
         format("temperature = {}, but it must be 0 or more and finite", s.temperature));
  }
  if (s.top_k < 0)
    fail(ErrorCode::usage, format("top-k = {}, but it must be 0 (all) or more", s.top_k));
  if (!(s.top_p > 0) || s.top_p > 1)
    fail(ErrorCode::usage, format("top-p = {}, but it must be above 0 and at most 1", s.top_p));
}

Sampler::Sampler(const Sampling& sampling, std::uint32_t stream)
    : sampling_(sampling), key_(fold(fold(key_from_seed(sampling.seed), "sampling"), stream)) {
  validate(sampling);
}

// In (0, 1), 53 bits.
double Sampler::uniform() {
  const auto words = philox(
      key_, {static_cast<std::uint32_t>(drawn_), static_cast<std::uint32_t>(drawn_ >> 32), 0, 0});
  ++drawn_;
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

std::int32_t Sampler::next(std::span<const float> scores) {
  const std::size_t best = largest(scores);
  if (sampling_.temperature == 0) return static_cast<std::int32_t>(best);
  candidates_.resize(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double below = static_cast<double>(scores[i]) - static_cast<double>(scores[best]);
    candidates_[i] = {std::exp(below / sampling_.temperature), static_cast<std::int32_t>(i)};
  }
  keep_most_probable();
  keep_nucleus();
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double left = uniform() * total;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return candidates_.front().id;  // the sums rounded differently
}

namespace {

// By weight, of equal ones by id: one order, so that what is kept does not hang on a sort.
constexpr auto before = [](const auto& a, const auto& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
};

}  // namespace

void Sampler::keep_most_probable() {
  const auto k = static_cast<std::size_t>(sampling_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  std::ranges::partial_sort(candidates_, candidates_.begin() + sampling_.top_k, before);
  candidates_.resize(k);
}

// Halves the candidates among which the last one of the nucleus is, until they are few. The order
// of all others stays as it is.
void Sampler::keep_nucleus() {
  if (sampling_.top_p == 1) return;
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double missing = sampling_.top_p * total;
  // All that is less probable than this has less than 1 - top_p together.
  const double least = (total - missing) / static_cast<double>(candidates_.size());
  ordered_.clear();
  std::ranges::copy_if(candidates_, std::back_inserter(ordered_),
                       [&](const Candidate& c) { return c.weight >= least; });
  auto begin = ordered_.begin(), end = ordered_.end();
  while (end - begin > 32) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    double mass = 0;
    for (auto c = begin; c != middle; ++c) mass += c->weight;
    if (mass >= missing) {
      end = middle;
    } else {
      missing -= mass;
      begin = middle;
    }
  }
  std::sort(begin, end, before);
  for (; begin + 1 < end && begin->weight < missing; ++begin) missing -= begin->weight;
  std::erase_if(candidates_, [last = *begin](const Candidate& c) { return before(last, c); });
}

}  // namespace dew
