#include "dew/base/utf8.h"

#include <algorithm>
#include <utility>

namespace dew {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes of a character by its first one, and what the second one must lie in: the range that
// excludes longer spellings than needed, surrogates, and what is beyond U+10FFFF.
struct Lead {
  std::size_t bytes = 0;
  unsigned char low = 0x80, high = 0xbf;
};

Lead lead_of(unsigned char first) {
  if (first < 0x80) return {.bytes = 1};
  if (first < 0xc2) return {};
  if (first < 0xe0) return {.bytes = 2};
  if (first == 0xe0) return {.bytes = 3, .low = 0xa0};
  if (first == 0xed) return {.bytes = 3, .high = 0x9f};
  if (first < 0xf0) return {.bytes = 3};
  if (first == 0xf0) return {.bytes = 4, .low = 0x90};
  if (first < 0xf4) return {.bytes = 4};
  if (first == 0xf4) return {.bytes = 4, .high = 0x8f};
  return {};
}

// Returns the beginning of a character that the bytes end with.
std::string append_certain(std::string_view bytes, std::string& text) {
  for (;;) {
    const auto ascii =
        std::ranges::find_if(bytes, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    const auto run = static_cast<std::size_t>(ascii - bytes.begin());
    text += bytes.substr(0, run);
    bytes.remove_prefix(run);
    const Utf8Front front = utf8_front(bytes);
    if (front.kind == Utf8Front::Kind::unfinished) return std::string(bytes);
    text += front.kind == Utf8Front::Kind::character ? bytes.substr(0, front.bytes) : kReplacement;
    bytes.remove_prefix(front.bytes);
  }
}

}  // namespace

Utf8Front utf8_front(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 0) return {Utf8Front::Kind::broken, 1};
  const std::size_t there = std::min(lead.bytes, text.size());
  for (std::size_t i = 1; i < there; ++i) {
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xbf;
    if (byte(i) < low || byte(i) > high) return {Utf8Front::Kind::broken, i};
  }
  return {there == lead.bytes ? Utf8Front::Kind::character : Utf8Front::Kind::unfinished, there};
}

void Utf8Stream::feed(std::string_view bytes, std::string& text) {
  const std::string held = std::exchange(held_, {});
  if (held.empty()) {
    held_ = append_certain(bytes, text);
  } else {
    held_ = append_certain(held + std::string(bytes), text);
  }
}

void Utf8Stream::finish(std::string& text) {
  if (!held_.empty()) text += kReplacement;
  held_.clear();
}

}  // namespace dew
