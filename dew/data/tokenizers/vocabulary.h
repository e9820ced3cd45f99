// Tokens by number and by text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dew {

using TokenId = std::int32_t;

// A hash of short texts, the same on every machine.
std::uint64_t hash_text(std::string_view text);

// Texts, each with an id. Immutable once built; texts are kept in one block.
class Vocabulary {
 public:
  static constexpr TokenId kMostIds = 1 << 24;  // far beyond any published one

  Vocabulary() = default;

  // Adds a token. False if the text or the id is there already, or the id is not in
  // [0, kMostIds).
  bool add(std::string_view text, TokenId id);

  std::optional<TokenId> find(std::string_view text) const;
  // None for ids between others that no token has, and beyond the last.
  std::optional<std::string_view> text(TokenId id) const;

  std::size_t size() const { return count_; }                          // tokens
  TokenId end() const { return static_cast<TokenId>(spans_.size()); }  // above the highest id
  std::size_t longest() const { return longest_; }                     // bytes of the longest token

 private:
  struct Span {
    std::size_t begin = 0;
    std::int64_t bytes = -1;  // -1: no token
  };

  std::string_view view(TokenId id) const;
  std::size_t slot_of(std::string_view text) const;
  void grow();

  std::string texts_;
  std::vector<Span> spans_;     // by id
  std::vector<TokenId> slots_;  // open addressing, -1: empty; a power of two
  std::size_t count_ = 0, longest_ = 0;
};

}  // namespace dew
