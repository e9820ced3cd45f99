#include "dew/data/tokenizer.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::int32_t kByteEos = 255;

class ByteEncoder final : public TokenEncoder {
 public:
  explicit ByteEncoder(bool with_eos) : with_eos_(with_eos) {}

  void feed(std::string_view text, std::vector<std::int32_t>& ids) override {
    if (with_eos_) refuse_eos(text);
    const std::size_t old = ids.size();
    ids.resize(old + text.size());
    std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(old),
                   [](char c) { return static_cast<unsigned char>(c); });
    offset_ += static_cast<std::int64_t>(text.size());
  }
  void finish(std::vector<std::int32_t>&) override { offset_ = 0; }

 private:
  void refuse_eos(std::string_view text) const {
    const auto at = text.find('\xff');
    if (at == text.npos) return;
    fail(ErrorCode::data,
         format("byte {} of the text is 255, the end token; it cannot be part of a document",
                offset_ + static_cast<std::int64_t>(at)));
  }

  bool with_eos_;
  std::int64_t offset_ = 0;
};

// Bytes that a UTF-8 sequence with this first byte has; 0 if none begins with it.
std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xc2) return 0;
  if (byte < 0xe0) return 2;
  if (byte < 0xf0) return 3;
  return byte < 0xf5 ? 4 : 0;
}

bool continues_utf8(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

class ByteDecoder final : public TokenDecoder {
 public:
  explicit ByteDecoder(bool with_eos) : with_eos_(with_eos) {}

  void feed(std::int32_t id, std::string& text) override {
    if (id < 0 || id > 255) {
      fail(ErrorCode::data, format("id {} is outside the vocabulary of 256 bytes", id));
    }
    if (with_eos_ && id == kByteEos) return finish(text);
    const char byte = static_cast<char>(static_cast<unsigned char>(id));
    // What cannot become a character is passed on as it is: decoding is exact for any bytes.
    if (!held_.empty() && !continues_utf8(byte)) finish(text);
    held_.push_back(byte);
    if (held_.size() >= utf8_length(held_.front())) finish(text);
  }

  void finish(std::string& text) override {
    text += held_;
    held_.clear();
  }

 private:
  bool with_eos_;
  std::string held_;  // a beginning of one character
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  const auto document = encoder();
  document->feed(text, ids);
  document->finish(ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  const auto stream = decoder();
  for (const std::int32_t id : ids) stream->feed(id, text);
  stream->finish(text);
  return text;
}

std::optional<std::int32_t> ByteTokenizer::eos_id() const {
  return with_eos_ ? std::optional(kByteEos) : std::nullopt;
}

std::unique_ptr<TokenEncoder> ByteTokenizer::encoder() const {
  return std::make_unique<ByteEncoder>(with_eos_);
}

std::unique_ptr<TokenDecoder> ByteTokenizer::decoder() const {
  return std::make_unique<ByteDecoder>(with_eos_);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, bool with_eos) {
  if (name == "byte") return std::make_unique<ByteTokenizer>(with_eos);
  fail(ErrorCode::usage, format("tokenizer '{}': tokenizer files are not supported yet", name),
       "the tokenizer that exists is 'byte'");
}

}  // namespace dew
