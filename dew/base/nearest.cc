#include "dew/base/nearest.h"

#include <algorithm>
#include <vector>

namespace dew {

// A row for each prefix of `a`: the edits to each prefix of `b`. Two rows before it are looked at.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t most) {
  const std::size_t apart = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  if (apart > most) return apart;
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> rows(3 * width);
  std::size_t *row = rows.data(), *above = row + width, *over = above + width;
  for (std::size_t j = 0; j < width; ++j) row[j] = j;
  std::size_t least = 0, least_above = 0;  // of a row: no later one has less than both
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(over, above);
    std::swap(above, row);
    least_above = least;
    row[0] = least = i;
    for (std::size_t j = 1; j < width; ++j) {
      const std::size_t changed = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], over[j - 2] + 1);
      least = std::min(least, row[j]);
    }
    if (std::min(least, least_above) > most) return std::min(least, least_above);
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view text, std::span<const std::string_view> words) {
  constexpr std::size_t kLongest = 64;  // longer ones mean nothing, and take quadratic time
  const std::string_view start = text.substr(0, kLongest);
  std::string_view best;
  std::size_t least = kNoLimit;
  for (const std::string_view word : words) {
    const std::size_t distance = edit_distance(start, word, least);
    if (distance < least) least = distance, best = word;
  }
  return best;
}

}  // namespace dew
