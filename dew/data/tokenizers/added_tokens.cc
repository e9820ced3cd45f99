#include "dew/data/tokenizers/added_tokens.h"

#include <algorithm>

#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

// Where the white space at the end of text[from..end) begins.
std::size_t space_before(std::string_view text, std::size_t from, std::size_t end) {
  while (end > from) {
    const CodePoint c = back_code_point(text.substr(0, end));
    if (!is_white_space(c.value)) break;
    end -= c.bytes;
  }
  return std::max(from, end);
}

std::size_t space_behind(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = front_code_point(text.substr(at));
    if (!is_white_space(c.value)) break;
    at += c.bytes;
  }
  return at;
}

bool inside_of_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word_character(back_code_point(text.substr(0, begin)).value)) ||
         (end < text.size() && is_word_character(front_code_point(text.substr(end)).value));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder() : nodes_(1) {}

void AddedTokenFinder::add(std::string_view text, const AddedToken* token) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    auto& next = nodes_[node].next;
    const auto found =
        std::ranges::find(next, byte, &std::pair<unsigned char, std::uint32_t>::first);
    if (found != next.end()) {
      node = found->second;
      continue;
    }
    const auto made = static_cast<std::uint32_t>(nodes_.size());
    next.emplace_back(byte, made);
    nodes_.emplace_back();
    node = made;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_bytes_[static_cast<unsigned char>(text[0])] = true;
  any_lstrip_ = any_lstrip_ || token->lstrip;
}

AddedTokenFinder::Hit AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  Hit hit;
  std::uint32_t node = 0;
  for (;; ++at) {
    if (nodes_[node].token >= 0) {
      hit.end = at;
      hit.token = nodes_[node].token;
    }
    if (nodes_[node].next.empty()) return hit;
    if (at == text.size()) {
      hit.open = true;
      return hit;
    }
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto& next = nodes_[node].next;
    const auto found =
        std::ranges::find(next, byte, &std::pair<unsigned char, std::uint32_t>::first);
    if (found == next.end()) return hit;
    node = found->second;
  }
}

void AddedTokenFinder::visit(std::string_view text, Place& place, bool complete, bool special,
                             const Visit& visit) const {
  std::size_t& given = place.given;
  const auto give_text = [&](std::size_t end) {
    if (end > given) visit({given, end, nullptr});
    given = std::max(given, end);
  };
  // Text before what is not certain; white space at its end may belong to a token that follows.
  const auto stop_before = [&](std::size_t end) {
    give_text(any_lstrip_ ? space_before(text, given, end) : end);
    place.search = end;
  };
  std::size_t at = place.search;
  while (at < text.size()) {
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Hit hit = longest_at(text, at);
    if (hit.open && !complete) return stop_before(at);
    if (hit.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = *tokens_[static_cast<std::size_t>(hit.token)];
    const std::size_t match = at;
    at = hit.end;
    if (token.special && !special) continue;
    if (!complete && at == text.size() && (token.single_word || token.rstrip))
      return stop_before(match);
    if (token.single_word && inside_of_word(text, match, at)) continue;
    const std::size_t begin = token.lstrip ? space_before(text, given, match) : match;
    const std::size_t end = token.rstrip ? space_behind(text, at) : at;
    if (!complete && token.rstrip && end == text.size()) return stop_before(match);
    // White space that the token before has taken; nothing is left of this one.
    if (token.lstrip && begin >= end) continue;
    give_text(begin);
    visit({begin, end, &token});
    given = end;
  }
  if (!complete) return stop_before(text.size());
  give_text(text.size());
  place.search = text.size();
}

}  // namespace dew
