#include "dew/data/epoch_order.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dew {
namespace {

std::vector<std::int64_t> order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  const EpochOrder permutation(n, seed, epoch);
  std::vector<std::int64_t> entries;
  for (std::int64_t i = 0; i < n; ++i) entries.push_back(permutation(i));
  return entries;
}

bool is_bijection(std::vector<std::int64_t> entries) {
  std::sort(entries.begin(), entries.end());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

TEST(EpochOrder, IsABijection) {
  for (std::int64_t n = 1; n <= 70; ++n) {
    for (std::int64_t epoch = 0; epoch < 5; ++epoch)
      EXPECT_TRUE(is_bijection(order(n, 3, epoch))) << n;
  }
  for (const std::int64_t n : {2987, 65535, 65536, 65537, 1'000'003})
    EXPECT_TRUE(is_bijection(order(n, 0, 1))) << n;
  EXPECT_TRUE(rc::check("any n, seed, epoch", [] {
    const auto n = *rc::gen::inRange<std::int64_t>(1, 5000);
    RC_ASSERT(is_bijection(order(n, *rc::gen::arbitrary<std::uint64_t>(),
                                 *rc::gen::inRange<std::int64_t>(0, 1L << 40))));
  }));
}

// Of a domain too large to walk: injective on a sample, and in range.
TEST(EpochOrder, HugeDomains) {
  for (const std::int64_t n :
       {(std::int64_t{1} << 32) + 1, std::int64_t{3'750'000'000}, std::int64_t{1} << 62}) {
    const EpochOrder permutation(n, 1, 0);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < 50'000; ++i) {
      const std::int64_t entry = permutation(i < 25'000 ? i : n - 1 - i);
      EXPECT_TRUE(0 <= entry && entry < n);
      EXPECT_TRUE(seen.insert(entry).second);
    }
    EXPECT_GT(*seen.rbegin(), n - n / 1000);
    EXPECT_LT(*seen.begin(), n / 1000);
  }
}

TEST(EpochOrder, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(order(12, 5, 2), order(12, 5, 2));
  const std::set<std::vector<std::int64_t>> epochs = {
      order(12, 5, 0), order(12, 5, 1), order(12, 5, 2), order(12, 5, std::int64_t{1} << 32)};
  EXPECT_EQ(epochs.size(), 4u);
  EXPECT_NE(order(12, 5, 0), order(12, 6, 0));
  EXPECT_NE(order(12, 5, 0), order(12, 5 + (std::uint64_t{1} << 32), 0));
}

// Small sets are where a Feistel network is weakest: every order must come about equally often.
TEST(EpochOrder, SmallSetsSeeEveryOrder) {
  const std::map<std::int64_t, int> factorial = {{2, 2}, {3, 6}, {4, 24}, {5, 120}};
  for (const auto& [n, orders] : factorial) {
    constexpr int kExpected = 200;
    std::map<std::vector<std::int64_t>, int> count;
    for (int epoch = 0; epoch < orders * kExpected; ++epoch) ++count[order(n, 11, epoch)];
    EXPECT_EQ(static_cast<int>(count.size()), orders) << n;
    double chi2 = 0;
    for (const auto& [entries, times] : count) chi2 += std::pow(times - kExpected, 2) / kExpected;
    EXPECT_LT(chi2, orders + 6 * std::sqrt(2.0 * orders))
        << n;  // mean orders - 1, deviation sqrt(2 orders)
  }
}

// Neighbours in the order must not be neighbours in the file more often than by chance.
TEST(EpochOrder, LargeSetsLookRandom) {
  for (const std::int64_t n : {2987, 100'000}) {
    const auto entries = order(n, 0, 0);
    double sum = 0, near = 0;
    for (std::size_t i = 1; i < entries.size(); ++i) {
      const double distance =
          std::abs(static_cast<double>(entries[i] - entries[i - 1])) / static_cast<double>(n);
      sum += distance;
      near += distance < 0.01 ? 1 : 0;
    }
    const auto count = static_cast<double>(n - 1);
    EXPECT_NEAR(sum / count, 1.0 / 3, 4 * 0.24 / std::sqrt(count)) << n;
    EXPECT_NEAR(near / count, 0.0199, 5 * std::sqrt(0.02 / count)) << n;
  }
}

}  // namespace
}  // namespace dew
