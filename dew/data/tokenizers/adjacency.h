// Where text falls into parts that no token crosses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dew {

// The pairs of neighbours inside of tokens. Between two characters (or bytes) that are neighbours
// in no token, every segmentation has a boundary, so that both sides can be encoded by themselves.
// Pairs of characters are hashed to bits: a collision loses a boundary, never makes one.
class Adjacency {
 public:
  enum class Unit : std::uint8_t { byte, character };
  explicit Adjacency(Unit unit);

  // REQUIRES: valid UTF-8 where the unit is a character.
  void add_token(std::string_view token);
  // From now on only between characters (up to U+FFFF) that have been declared known: what a model
  // does not know may join with its neighbours, or be left out between them.
  void only_between_known() { only_known_ = true; }
  void declare_known(std::uint32_t unit);

  // The end of a first part of `text`, at least `least` bytes long, that ends where it should for
  // words to be met again: before a blank or U+2581 that none is before. Without one within `reach`
  // bytes behind `least`, the last boundary of those, or else the first behind them; text.size() if
  // there is none.
  std::size_t first_part(std::string_view text, std::size_t least, std::size_t reach) const;
  // The last boundary inside of `text` before a blank or U+2581; else the last in its final
  // kLookBack bytes; 0 if there is none.
  std::size_t last_boundary(std::string_view text) const;

  bool separates(std::string_view text, std::size_t at) const { return place(text, at).boundary; }

  static constexpr std::size_t kLookBack = 256;

 private:
  struct Place {
    bool boundary, word;  // a word begins here
  };
  Place place(std::string_view text, std::size_t at) const;
  bool begins_unit(std::string_view text, std::size_t at) const;
  std::size_t bit(std::uint32_t left, std::uint32_t right) const;
  std::uint32_t left_of(std::string_view text, std::size_t at) const;
  std::uint32_t right_of(std::string_view text, std::size_t at) const;

  bool known(std::uint32_t unit) const { return unit < known_.size() && known_[unit]; }

  Unit unit_;
  bool only_known_ = false;
  std::vector<std::uint64_t> bits_;
  std::vector<bool> known_;
};

}  // namespace dew
