#include "dew/base/nearest.h"

#include <algorithm>
#include <vector>

namespace dew {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto d = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) d(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = d(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      d(i, j) = std::min({changed, d(i - 1, j) + 1, d(i, j - 1) + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d(i, j) = std::min(d(i, j), d(i - 2, j - 2) + 1);
    }
  }
  return table.back();
}

std::string_view nearest(std::string_view text, std::span<const std::string_view> words) {
  constexpr std::size_t kLongest = 64;  // longer ones mean nothing, and take quadratic time
  const std::string_view start = text.substr(0, kLongest);
  return *std::ranges::min_element(
      words, {}, [&](std::string_view word) { return edit_distance(start, word); });
}

}  // namespace dew
