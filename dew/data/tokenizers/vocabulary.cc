#include "dew/data/tokenizers/vocabulary.h"

#include <algorithm>
#include <cstring>

namespace dew {

std::uint64_t hash_text(std::string_view text) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
  std::uint64_t hash = text.size() * kOdd;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  };
  while (text.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    mix(word);
    text.remove_prefix(sizeof word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), text.size());
  mix(word);
  return hash;
}

std::string_view Vocabulary::view(TokenId id) const {
  const Span& span = spans_[static_cast<std::size_t>(id)];
  return std::string_view(texts_).substr(span.begin, static_cast<std::size_t>(span.bytes));
}

std::size_t Vocabulary::slot_of(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_text(text) & mask;
  while (slots_[slot] >= 0 && view(slots_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  const std::size_t size = std::max<std::size_t>(64, 2 * slots_.size());
  slots_.assign(size, -1);
  for (TokenId id = 0; id < end(); ++id) {
    if (spans_[static_cast<std::size_t>(id)].bytes >= 0) slots_[slot_of(view(id))] = id;
  }
}

bool Vocabulary::add(std::string_view text, TokenId id) {
  if (id < 0 || id >= kMostIds || this->text(id) || find(text)) return false;
  if (id >= end()) spans_.resize(static_cast<std::size_t>(id) + 1);
  spans_[static_cast<std::size_t>(id)] = {texts_.size(), static_cast<std::int64_t>(text.size())};
  texts_ += text;
  longest_ = std::max(longest_, text.size());
  if (++count_ * 2 > slots_.size()) {
    grow();
  } else {
    slots_[slot_of(text)] = id;
  }
  return true;
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const TokenId id = slots_[slot_of(text)];
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Vocabulary::text(TokenId id) const {
  if (id < 0 || id >= end() || spans_[static_cast<std::size_t>(id)].bytes < 0) return std::nullopt;
  return view(id);
}

}  // namespace dew
