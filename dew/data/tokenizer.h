// Text to ids and back. Bytes are one tokenizer; those of tokenizer files implement the same
// interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dew {

// Encodes one document that comes in pieces, cut anywhere.
class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;
  // Appends the ids that are certain now; the rest is held back.
  virtual void feed(std::string_view text, std::vector<std::int32_t>& ids) = 0;
  // The document ends: appends what was held back. The next feed() begins another document.
  virtual void finish(std::vector<std::int32_t>& ids) = 0;
};

// Decodes ids one by one, never giving half a UTF-8 character before finish().
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Appends the text that is certain now. Throws ErrorCode::data on an id outside the vocabulary.
  virtual void feed(std::int32_t id, std::string& text) = 0;
  // The ids end: appends what was held back, be it a whole character or not.
  virtual void finish(std::string& text) = 0;
};

// Immutable, usable from any thread; encoders and decoders belong to one thread each and need their
// tokenizer alive.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // as in meta.json
  virtual std::int64_t vocab_size() const = 0;
  // The id between documents, if there is one.
  virtual std::optional<std::int32_t> eos_id() const = 0;
  virtual std::unique_ptr<TokenEncoder> encoder() const = 0;
  virtual std::unique_ptr<TokenDecoder> decoder() const = 0;

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
};

// Id = byte, vocabulary 256. With an end token that is id 255, a byte that no UTF-8 text contains:
// text that does contain it is then refused (ErrorCode::data). Decoding leaves the end token out.
class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool with_eos = false) : with_eos_(with_eos) {}
  std::string name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return 256; }
  std::optional<std::int32_t> eos_id() const override;
  std::unique_ptr<TokenEncoder> encoder() const override;
  std::unique_ptr<TokenDecoder> decoder() const override;

 private:
  bool with_eos_;
};

// "byte", or what is not there yet: a tokenizer file, which is a usage error.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, bool with_eos = false);

}  // namespace dew
