// From tokens back to text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dew/data/tokenizers/normalizer.h"

namespace dew {

struct ByteLevelDecode {};     // characters of byte_characters.h to bytes
struct ByteFallbackDecode {};  // tokens <0x00>... to bytes
struct FuseDecode {};          // all tokens are one from here on
struct MarkDecode {            // SentencePiece's blank to ' '
  std::string mark;
  bool drop_first = true;  // those of the first token go
};
struct StripDecode {
  std::string character;
  std::int64_t start = 0, stop = 0;  // so many of them go at most
};

using DecodeStep = std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, MarkDecode,
                                ReplaceStep, StripDecode>;
using DecodeSteps = std::vector<DecodeStep>;

// Throws ErrorCode::data, with `where`, if behind a fuse there is a step that would have to see all
// of the text at once.
void check_decode_steps(const DecodeSteps& steps, const std::string& where);

// One stage of a chain: takes tokens, gives tokens.
class DecodeStage {
 public:
  using Give = std::function<void(std::string_view token)>;
  virtual ~DecodeStage() = default;
  virtual void token(std::string_view token, const Give& give) = 0;
  virtual void finish(const Give& give) { (void)give; }
};

// The chain at work on one text. What it gives is valid UTF-8 if the tokens are, and certain:
// characters whose bytes are not all there are held back.
class TextDecoder {
 public:
  explicit TextDecoder(const DecodeSteps& steps);

  void token(std::string_view token, std::string& text);
  // The text ends; the next token begins another one.
  void finish(std::string& text);

 private:
  void pass(std::size_t stage, std::string_view token, std::string& text);

  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace dew
