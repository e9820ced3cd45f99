#include "dew/data/tokenizers/word_counts.h"

#include <algorithm>

namespace dew {

void WordCounts::grow() {
  slots_.assign(std::max<std::size_t>(1024, 2 * slots_.size()), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

void WordCounts::add(std::string_view text, std::int64_t count) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const std::uint64_t hash = hash_text(text);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const std::size_t i = slots_[slot] - 1;
    if (entries_[i].hash != hash || word(i) != text) continue;
    entries_[i].count += count;
    return;
  }
  entries_.push_back({texts_.size(), text.size(), hash, count});
  texts_ += text;
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
}

void WordCounts::add(const WordCounts& other) {
  for (std::size_t i = 0; i < other.size(); ++i) add(other.word(i), other.count(i));
}

}  // namespace dew
