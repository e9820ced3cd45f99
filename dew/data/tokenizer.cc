#include "dew/data/tokenizer.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::int32_t kByteEos = 255;

void refuse_eos(std::string_view text, std::int64_t offset) {
  const auto at = text.find('\xff');
  if (at == text.npos) return;
  fail(ErrorCode::data,
       format("byte {} of the text is 255, the end token; it cannot be part of a document",
              offset + static_cast<std::int64_t>(at)));
}

void append_bytes(std::string_view text, std::vector<std::int32_t>& ids) {
  const std::size_t old = ids.size();
  ids.resize(old + text.size());
  std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(old),
                 [](char c) { return static_cast<unsigned char>(c); });
}

// Every byte is a boundary.
class ByteParts final : public PartEncoder {
 public:
  explicit ByteParts(bool with_eos) : with_eos_(with_eos) {}

  PartIds encode(const DocumentPart& part) override {
    const std::string_view text = part.text.substr(0, part.bytes);
    if (with_eos_) refuse_eos(text, part.offset);
    PartIds result;
    append_bytes(text, result.ids);
    result.head = {{0, 0}};
    result.last = {part.bytes, part.bytes};
    result.tail = {*result.last};
    return result;
  }

 private:
  bool with_eos_;
};

class ByteEncoder final : public TokenEncoder {
 public:
  explicit ByteEncoder(bool with_eos) : with_eos_(with_eos) {}

  void feed(std::string_view text, std::vector<std::int32_t>& ids) override {
    if (with_eos_) refuse_eos(text, offset_);
    append_bytes(text, ids);
    offset_ += static_cast<std::int64_t>(text.size());
  }
  void finish(std::vector<std::int32_t>&) override { offset_ = 0; }

 private:
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

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  const auto document = encoder(options);
  document->feed(text, ids);
  document->finish(ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              const DecodeOptions& options) const {
  std::string text;
  const auto stream = decoder(options);
  for (const std::int32_t id : ids) stream->feed(id, text);
  stream->finish(text);
  return text;
}

std::optional<std::int32_t> ByteTokenizer::eos_id() const {
  return with_eos_ ? std::optional(kByteEos) : std::nullopt;
}

std::unique_ptr<TokenEncoder> ByteTokenizer::encoder(const EncodeOptions&) const {
  return std::make_unique<ByteEncoder>(with_eos_);
}

std::unique_ptr<PartEncoder> ByteTokenizer::part_encoder(const EncodeOptions&) const {
  return std::make_unique<ByteParts>(with_eos_);
}

std::unique_ptr<TokenDecoder> ByteTokenizer::decoder(const DecodeOptions&) const {
  return std::make_unique<ByteDecoder>(with_eos_);
}

}  // namespace dew
