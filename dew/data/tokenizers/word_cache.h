// Short pieces and their ids, as they were met: natural text repeats its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

// Of fixed size: a piece takes the place of the one that was there. Longer pieces and those of more
// ids are not kept.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 31, kMostIds = 7;

  // Appends the ids of the piece if it is known.
  bool find(std::string_view piece, std::vector<TokenId>& ids) {
    if (piece.size() > kMostBytes) return false;
    if (entries_.empty()) entries_.resize(kEntries);
    const Key key = key_of(piece);
    place_ = hash(key, piece.size()) % kEntries;
    const Entry& entry = entries_[place_];
    if (entry.bytes != piece.size() || std::memcmp(entry.key, key.words, sizeof key.words) != 0)
      return false;
    const std::size_t begin = ids.size();
    ids.resize(begin + entry.count);
    for (std::size_t i = 0; i < entry.count; ++i) ids[begin + i] = entry.ids[i];
    return true;
  }

  // The ids of the piece that find() has just not found.
  void remember(std::string_view piece, std::span<const TokenId> ids) {
    if (piece.size() > kMostBytes || ids.size() > kMostIds) return;
    Entry& entry = entries_[place_];
    const Key key = key_of(piece);
    std::memcpy(entry.key, key.words, sizeof key.words);
    entry.bytes = static_cast<std::uint8_t>(piece.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) entry.ids[i] = ids[i];
  }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << 16;  // 4 MiB

  struct Key {
    std::uint64_t words[4] = {};
  };
  struct alignas(64) Entry {
    std::uint64_t key[4] = {};
    TokenId ids[kMostIds] = {};
    std::uint8_t bytes = 255, count = 0;
  };

  static Key key_of(std::string_view piece) {
    Key key;
    std::memcpy(key.words, piece.data(), piece.size());
    return key;
  }
  static std::size_t hash(const Key& key, std::size_t bytes) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
    std::uint64_t h = (key.words[0] ^ bytes) * kOdd;
    h = (h ^ key.words[1] ^ h >> 29) * kOdd;
    if (bytes > 16) h = (h ^ key.words[2] ^ key.words[3] * kOdd ^ h >> 31) * kOdd;
    return h >> 40;
  }

  std::vector<Entry> entries_;
  std::size_t place_ = 0;
};

}  // namespace dew
