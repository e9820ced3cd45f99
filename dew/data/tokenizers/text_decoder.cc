#include "dew/data/tokenizers/text_decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/byte_characters.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

class ByteLevelStage final : public DecodeStage {
 public:
  void token(std::string_view token, const Give& give) override {
    std::string text;
    const auto bytes = bytes_of_characters(token);
    utf8_.feed(bytes ? std::string_view(*bytes) : token, text);
    if (!text.empty()) give(text);
  }
  void finish(const Give& give) override {
    std::string text;
    utf8_.finish(text);
    if (!text.empty()) give(text);
  }

 private:
  Utf8Stream utf8_;
};

// The byte of a token <0x..>.
std::optional<unsigned char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  const char* const end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<unsigned char>(value);
}

// Bytes in a row are text if all of them together are valid; else each is a broken character. So
// none can be given before the row ends.
class ByteFallbackStage final : public DecodeStage {
 public:
  void token(std::string_view token, const Give& give) override {
    if (const auto byte = fallback_byte(token)) {
      bytes_ += static_cast<char>(*byte);
      return;
    }
    finish(give);
    give(token);
  }
  void finish(const Give& give) override {
    if (valid_utf8_prefix(bytes_) == bytes_.size()) {
      if (!bytes_.empty()) give(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) give(kReplacement);
    }
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

class MarkStage final : public DecodeStage {
 public:
  explicit MarkStage(const MarkDecode& step) : step_(step) {}
  void token(std::string_view token, const Give& give) override {
    const std::string_view by = first_ && step_.drop_first ? "" : " ";
    first_ = false;
    std::string text;
    while (!token.empty()) {
      const std::size_t at = std::min(token.find(step_.mark), token.size());
      text += token.substr(0, at);
      token.remove_prefix(at);
      if (token.empty()) break;
      text += by;
      token.remove_prefix(step_.mark.size());
    }
    give(text);
  }
  void finish(const Give&) override { first_ = true; }

 private:
  const MarkDecode& step_;
  bool first_ = true;
};

class ReplaceStage final : public DecodeStage {
 public:
  explicit ReplaceStage(const ReplaceStep& step) : step_(step) {}
  void token(std::string_view token, const Give& give) override {
    const bool nothing_there =
        !step_.literal.empty() && token.find(step_.literal) == std::string_view::npos;
    if (nothing_there || token.empty()) return give(token);
    text_.clear();
    GrownText grown(text_, GrownText::kMostOfToken);
    append_replaced(token, step_, grown);
    give(text_);
  }

 private:
  const ReplaceStep& step_;
  std::string text_;
};

// Of each token by itself.
class StripStage final : public DecodeStage {
 public:
  explicit StripStage(const StripDecode& step) : step_(step) {}
  void token(std::string_view token, const Give& give) override {
    for (std::int64_t i = 0; i < step_.start && token.starts_with(step_.character); ++i)
      token.remove_prefix(step_.character.size());
    for (std::int64_t i = 0; i < step_.stop && token.ends_with(step_.character); ++i)
      token.remove_suffix(step_.character.size());
    give(token);
  }

 private:
  const StripDecode& step_;
};

// Of the whole text, of which tokens are parts. As many at the end as may have to go are held back.
class StripFusedStage final : public DecodeStage {
 public:
  explicit StripFusedStage(const StripDecode& step) : step_(step) { reset(); }

  void token(std::string_view token, const Give& give) override {
    while (left_ > 0 && !token.empty()) {
      if (!token.starts_with(step_.character)) {
        left_ = 0;
        break;
      }
      token.remove_prefix(step_.character.size());
      --left_;
    }
    held_ += token;
    std::string_view rest = held_;
    for (std::int64_t i = 0; i < step_.stop && rest.ends_with(step_.character); ++i)
      rest.remove_suffix(step_.character.size());
    if (rest.empty()) return;
    give(rest);
    held_.erase(0, rest.size());
  }
  void finish(const Give&) override { reset(); }

 private:
  void reset() {
    left_ = step_.start;
    held_.clear();
  }
  const StripDecode& step_;
  std::int64_t left_ = 0;
  std::string held_;
};

std::unique_ptr<DecodeStage> make_stage(const DecodeStep& step, bool fused) {
  if (std::holds_alternative<ByteLevelDecode>(step)) return std::make_unique<ByteLevelStage>();
  if (std::holds_alternative<ByteFallbackDecode>(step))
    return std::make_unique<ByteFallbackStage>();
  if (const auto* mark = std::get_if<MarkDecode>(&step)) return std::make_unique<MarkStage>(*mark);
  if (const auto* replace = std::get_if<ReplaceStep>(&step))
    return std::make_unique<ReplaceStage>(*replace);
  const auto& strip = std::get<StripDecode>(step);
  if (fused) return std::make_unique<StripFusedStage>(strip);
  return std::make_unique<StripStage>(strip);
}

}  // namespace

void check_decode_steps(const DecodeSteps& steps, const std::string& where) {
  bool fused = false;
  for (const DecodeStep& step : steps) {
    const bool strip = std::holds_alternative<StripDecode>(step);
    const bool fuse = std::holds_alternative<FuseDecode>(step);
    if (fused && !strip && !fuse) {
      fail(ErrorCode::data,
           format("{}: behind a Fuse or ByteLevel the only decoder supported is Strip", where));
    }
    // What the bytes make is one text as well.
    fused = fused || fuse || std::holds_alternative<ByteLevelDecode>(step);
  }
}

TextDecoder::TextDecoder(const DecodeSteps& steps) {
  bool fused = false;
  for (const DecodeStep& step : steps) {
    if (!std::holds_alternative<FuseDecode>(step)) stages_.push_back(make_stage(step, fused));
    fused = fused || std::holds_alternative<FuseDecode>(step) ||
            std::holds_alternative<ByteLevelDecode>(step);
  }
}

void TextDecoder::pass(std::size_t stage, std::string_view token, std::string& text) {
  if (stage == stages_.size()) {
    text += token;
    return;
  }
  stages_[stage]->token(token, [&](std::string_view next) { pass(stage + 1, next, text); });
}

void TextDecoder::token(std::string_view token, std::string& text) { pass(0, token, text); }

void TextDecoder::finish(std::string& text) {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    stages_[stage]->finish([&](std::string_view next) { pass(stage + 1, next, text); });
}

}  // namespace dew
