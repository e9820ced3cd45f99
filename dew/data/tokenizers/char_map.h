// The normalization table that SentencePiece compiles into its models: a double-array trie from
// characters to what replaces them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/grown_text.h"

namespace dew {

class CharMap {
 public:
  // `blob`: the trie's size in bytes (32 bits), the trie, replacements that end with a zero byte
  // each. Throws ErrorCode::data, naming `where`, if it is not that.
  CharMap(std::string_view blob, const std::string& where);

  // What replaces a text that begins with an entry: that of its shortest one. None: no entry.
  std::optional<std::string_view> find(std::string_view text) const;

  // Appends the text with its characters replaced: grapheme clusters of up to 5 bytes as a whole,
  // others a character at a time. REQUIRES: valid UTF-8.
  void append_replaced(std::string_view valid, GrownText& out) const;

 private:
  std::vector<std::uint32_t> trie_;
  std::string replacements_;
};

// Bytes of base64 text; none if it is no such text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace dew
