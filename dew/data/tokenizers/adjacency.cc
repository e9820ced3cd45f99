#include "dew/data/tokenizers/adjacency.h"

#include <algorithm>

#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::size_t kBytePairs = 1 << 16, kCharacterBits = 1 << 20, kMostKnown = 1 << 16;
constexpr std::uint32_t kSpaceMark = 0x2581;  // the blank of SentencePiece

bool is_blank(std::uint32_t c) { return c == ' ' || c == kSpaceMark; }

}  // namespace

Adjacency::Adjacency(Unit unit)
    : unit_(unit),
      bits_((unit == Unit::byte ? kBytePairs : kCharacterBits) / 64),
      known_(unit == Unit::byte ? 256 : kMostKnown) {}

void Adjacency::declare_known(std::uint32_t unit) {
  if (unit < known_.size()) known_[unit] = true;
}

std::size_t Adjacency::bit(std::uint32_t left, std::uint32_t right) const {
  if (unit_ == Unit::byte) return left << 8 | right;
  const std::uint64_t mixed =
      (std::uint64_t{left} << 32 | right) * std::uint64_t{0x9e3779b97f4a7c15U};
  return mixed >> 44;  // 20 bits
}

bool Adjacency::begins_unit(std::string_view text, std::size_t at) const {
  return unit_ == Unit::byte || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

std::uint32_t Adjacency::left_of(std::string_view text, std::size_t at) const {
  if (unit_ == Unit::byte) return static_cast<unsigned char>(text[at - 1]);
  return back_code_point(text.substr(0, at)).value;
}

std::uint32_t Adjacency::right_of(std::string_view text, std::size_t at) const {
  if (unit_ == Unit::byte) return static_cast<unsigned char>(text[at]);
  return front_code_point(text.substr(at)).value;
}

void Adjacency::add_token(std::string_view token) {
  for (std::size_t at = 1; at < token.size(); ++at) {
    if (!begins_unit(token, at)) continue;
    const std::size_t pair = bit(left_of(token, at), right_of(token, at));
    bits_[pair / 64] |= std::uint64_t{1} << pair % 64;
  }
}

Adjacency::Place Adjacency::place(std::string_view text, std::size_t at) const {
  const std::uint32_t left = left_of(text, at), right = right_of(text, at);
  const std::size_t pair = bit(left, right);
  const bool boundary =
      (bits_[pair / 64] >> pair % 64 & 1) == 0 && (!only_known_ || (known(left) && known(right)));
  return {boundary, boundary && is_blank(right) && !is_blank(left)};
}

std::size_t Adjacency::first_part(std::string_view text, std::size_t least,
                                  std::size_t reach) const {
  std::size_t any = 0;
  for (std::size_t at = std::max<std::size_t>(least, 1); at < text.size(); ++at) {
    if (!begins_unit(text, at)) continue;
    const Place here = place(text, at);
    if (here.word) return at;
    if (here.boundary) any = at;
    if (at >= least + reach && any != 0) return any;
  }
  return text.size() <= least + reach || any == 0 ? text.size() : any;
}

std::size_t Adjacency::last_boundary(std::string_view text) const {
  std::size_t any = 0;
  for (std::size_t at = text.size(); at-- > 1;) {
    if (!begins_unit(text, at)) continue;
    const Place here = place(text, at);
    if (here.word) return at;
    if (here.boundary && any == 0) any = at;
    if (text.size() - at > kLookBack && any != 0) return any;
  }
  return any;
}

}  // namespace dew
