#include "dew/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "dew/base/error.h"

namespace dew {
namespace {

std::vector<float> random_scores(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> scores;
  for (std::size_t i = 0; i < count; ++i)
    scores.push_back(static_cast<float>(random() % 2001) / 200.0f - 5.0f);  // some alike
  return scores;
}

// What is left and how probable it is, as plainly as can be.
std::map<std::int32_t, double> distribution(const std::vector<float>& scores, const Sampling& s) {
  std::vector<std::pair<double, std::int32_t>> sorted;  // minus the probability, id
  double total = 0;
  for (const float score : scores) total += std::exp(static_cast<double>(score) / s.temperature);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    sorted.emplace_back(-std::exp(static_cast<double>(scores[i]) / s.temperature) / total,
                        static_cast<std::int32_t>(i));
  }
  std::sort(sorted.begin(), sorted.end());
  if (s.top_k > 0 && s.top_k < static_cast<std::int64_t>(sorted.size()))
    sorted.resize(static_cast<std::size_t>(s.top_k));
  double kept = 0;
  for (const auto& [p, id] : sorted) kept -= p;
  std::map<std::int32_t, double> out;
  double sum = 0;
  for (const auto& [p, id] : sorted) {
    if (sum >= s.top_p) break;
    sum -= p / kept;
    out[id] = -p / kept;
  }
  double all = 0;
  for (const auto& [id, p] : out) all += p;
  for (auto& [id, p] : out) p /= all;
  return out;
}

// Nothing outside is drawn, and all inside as often as they should be.
void compare(const std::vector<float>& scores, const Sampling& sampling, int draws) {
  const std::map<std::int32_t, double> want = distribution(scores, sampling);
  std::map<std::int32_t, int> found;
  Sampler sampler(sampling);
  for (int i = 0; i < draws; ++i) ++found[sampler.next(scores)];
  for (const auto& [id, count] : found) ASSERT_TRUE(want.contains(id)) << id;
  for (const auto& [id, p] : want) {
    const double deviation = std::sqrt(draws * p * (1 - p));
    ASSERT_NEAR(found[id], draws * p, 5 * deviation + 1) << id;
  }
}

TEST(Sampler, DrawsAsTheDistributionSays) {
  for (const unsigned seed : {1u, 2u}) {
    const std::vector<float> scores = random_scores(18, seed);
    for (const double temperature : {0.3, 1.0, 5.0}) {
      for (const std::int64_t top_k : {0, 1, 5, 18, 100}) {
        for (const double top_p : {1.0, 0.9, 0.5, 1e-9}) {
          SCOPED_TRACE("temperature " + std::to_string(temperature) + " top_k " +
                       std::to_string(top_k) + " top_p " + std::to_string(top_p));
          compare(scores,
                  {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed}, 1500);
        }
      }
    }
  }
}

// More than one round of sorting.
TEST(Sampler, LargeNucleus) {
  const std::vector<float> scores = random_scores(700, 3);
  for (const double top_p : {0.6, 0.99}) compare(scores, {.temperature = 3, .top_p = top_p}, 3000);
  std::vector<float> alike(300, 1.0f);
  compare(alike, {.top_p = 0.5}, 5000);
  compare(alike, {.top_k = 7}, 1000);
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler({.temperature = 0, .seed = 5});
  EXPECT_EQ(sampler.next(std::vector<float>{1, 3, -2, 3}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{-7}), 0);
  EXPECT_EQ(sampler.next(std::vector<float>{-7, -6}), 1);
}

TEST(Sampler, ColdestAndHottest) {
  const std::vector<float> scores = random_scores(50, 4);
  Sampler greedy({.temperature = 0}), cold({.temperature = 1e-300});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cold.next(scores), greedy.next(scores));
  compare(scores, {.temperature = 1e300}, 2000);
}

std::vector<std::int32_t> draws(const Sampling& sampling, std::uint32_t stream = 0) {
  const std::vector<float> scores = random_scores(100, 6);
  Sampler sampler(sampling, stream);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(sampler.next(scores));
  return ids;
}

TEST(Sampler, SeedsAndStreams) {
  EXPECT_EQ(draws({.seed = 1}), draws({.seed = 1}));
  EXPECT_NE(draws({.seed = 1}), draws({.seed = 2}));
  EXPECT_NE(draws({.seed = 1}), draws({.seed = std::uint64_t{1} << 32}));
  EXPECT_NE(draws({.seed = 1}), draws({.seed = 1}, 1));
  // A seed means these ids in every version.
  const std::vector<std::int32_t> kept = {52, 99, 29, 64, 52, 38, 29, 35, 10, 10,
                                          47, 46, 47, 76, 30, 52, 75, 47, 79, 96};
  EXPECT_EQ(draws({.seed = 1}), kept);
}

TEST(Sampler, ScoresThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      try {
        Sampler({.temperature = temperature}).next(std::vector<float>{1, bad});
        ADD_FAILURE() << "taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::non_finite);
        EXPECT_NE(std::string(error.what()).find("score of id 1 is "), std::string::npos);
      }
    }
  }
}

TEST(Sampler, RefusedOptions) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = INFINITY;
  for (const Sampling& s :
       {Sampling{.temperature = -0.1}, Sampling{.temperature = nan}, Sampling{.temperature = inf},
        Sampling{.top_k = -1}, Sampling{.top_p = 0}, Sampling{.top_p = -1}, Sampling{.top_p = 1.01},
        Sampling{.top_p = nan}}) {
    EXPECT_THROW(Sampler{s}, Error);
  }
}

}  // namespace
}  // namespace dew
