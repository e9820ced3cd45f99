// Short pieces and their ids, as they were met: natural text repeats its words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

// Of fixed size, two places for a piece: a new one takes that of the older. Longer pieces and those
// of more ids are not kept.
class WordCache {
 public:
  static constexpr std::size_t kMostBytes = 31, kMostIds = 7;

  // All bytes of a piece, some of them twice, their number, and its first place.
  struct Key {
    std::uint64_t words[4] = {};
    std::uint32_t place = 0;
    std::uint8_t bytes = 0;
  };

  static bool keeps(std::string_view piece) { return piece.size() <= kMostBytes; }
  // REQUIRES: keeps(piece).
  static Key key_of(std::string_view piece) {
    Key key = bytes_of(piece);
    key.place = place_of(key);
    return key;
  }
  // None for pieces that are not kept.
  static std::optional<Key> keyed(std::string_view piece) {
    return keeps(piece) ? std::optional<Key>(key_of(piece)) : std::nullopt;
  }

  // For a key that is asked for soon: memory is slow.
  void expect(const Key& key) {
    if (entries_.empty()) entries_.resize(kEntries);
    __builtin_prefetch(&entries_[key.place]);
  }

  // Appends the ids of the piece if it is known.
  bool find(const Key& key, std::vector<TokenId>& ids) {
    if (entries_.empty()) entries_.resize(kEntries);
    for (const std::uint32_t place : {key.place, key.place ^ 1}) {
      const Entry& entry = entries_[place];
      if (!entry.holds(key)) continue;
      if (entry.count == 1) {
        ids.push_back(entry.ids[0]);
      } else {
        ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
      }
      return true;
    }
    return false;
  }

  // The ids of a piece that find() has not found.
  void remember(const Key& key, std::span<const TokenId> ids) {
    if (ids.size() > kMostIds) return;
    entries_[key.place ^ 1] = entries_[key.place];
    Entry& entry = entries_[key.place];
    std::copy(std::begin(key.words), std::end(key.words), entry.words);
    entry.bytes = key.bytes;
    entry.count = static_cast<std::uint8_t>(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) entry.ids[i] = ids[i];
  }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << 16;  // 4 MiB

  struct alignas(64) Entry {
    std::uint64_t words[4] = {};
    TokenId ids[kMostIds] = {};
    std::uint8_t bytes = 255, count = 0;

    bool holds(const Key& key) const {
      std::uint64_t differ = static_cast<std::uint64_t>(bytes ^ key.bytes);
      for (std::size_t i = 0; i < 4; ++i) differ |= words[i] ^ key.words[i];
      return differ == 0;
    }
  };

  template <typename T>
  static std::uint64_t load(const char* at) {
    T word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
  }
  static std::uint64_t load_few(const char* at, std::size_t bytes) {  // fewer than 8
    if (bytes >= 4) return load<std::uint32_t>(at) | load<std::uint32_t>(at + bytes - 4) << 32;
    if (bytes >= 2) return load<std::uint16_t>(at) | load<std::uint16_t>(at + bytes - 2) << 32;
    return bytes == 1 ? load<std::uint8_t>(at) : 0;
  }
  static Key bytes_of(std::string_view piece) {
    const char* const at = piece.data();
    const std::size_t n = piece.size();
    Key key;
    key.bytes = static_cast<std::uint8_t>(n);
    if (n < 8) {
      key.words[0] = load_few(at, n);
      return key;
    }
    key.words[0] = load<std::uint64_t>(at);
    key.words[1] = load<std::uint64_t>(at + n - 8);
    if (n <= 16) return key;
    key.words[2] = load<std::uint64_t>(at + 8);
    key.words[3] = load<std::uint64_t>(at + n - 16);
    return key;
  }
  static std::uint32_t place_of(const Key& key) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
    std::uint64_t h = (key.words[0] ^ key.bytes) * kOdd;
    h = (h ^ key.words[1] ^ h >> 29) * kOdd;
    if (key.bytes > 16) h = (h ^ key.words[2] ^ key.words[3] * kOdd ^ h >> 31) * kOdd;
    return static_cast<std::uint32_t>((h >> 40) % kEntries);
  }

  std::vector<Entry> entries_;
};

}  // namespace dew
