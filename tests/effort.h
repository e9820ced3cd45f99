// How much a test tries. CI tries so much that it ends in time; DEW_TEST_EFFORT=N tries N times as
// much. Sanitizers look at how memory is used and make a run ten times slower: with them a fifth.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace dew {

#ifdef DEW_SANITIZED
constexpr int kEffortShare = 5;
#else
constexpr int kEffortShare = 1;
#endif

inline int effort(int tries) {
  const char* times = std::getenv("DEW_TEST_EFFORT");
  return std::max(1, tries * (times == nullptr ? 1 : std::max(1, std::atoi(times))) / kEffortShare);
}

// Of a table, every row or every fifth.
template <class T>
std::vector<T> sampled(const std::vector<T>& rows) {
  std::vector<T> some;
  for (std::size_t i = 0; i < rows.size(); i += kEffortShare) some.push_back(rows[i]);
  return some;
}

}  // namespace dew
