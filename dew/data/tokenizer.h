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

// How text is read. Text is text: nothing in it becomes a control token unless that is asked for.
struct EncodeOptions {
  // Control tokens that are spelled out in the text are found.
  bool special_in_text = false;
  // The tokens that the tokenizer's file puts around a text (a beginning, an end) are put there.
  bool frame = false;
  // The text goes on from other text, at a boundary between tokens: nothing happens that happens at
  // the beginning of a text.
  bool continues = false;
};

struct DecodeOptions {
  bool skip_special = true;  // control tokens are left out
};

// Decodes ids one by one, never giving half a UTF-8 character before finish().
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Appends the text that is certain now. Throws ErrorCode::data on an id outside the vocabulary.
  virtual void feed(std::int32_t id, std::string& text) = 0;
  // The ids end: appends what was held back, be it a whole character or not. The next feed() begins
  // another text.
  virtual void finish(std::string& text) = 0;
};

// A part of a document that is too long for one thread.
struct DocumentPart {
  std::string_view text;    // the part and some of what follows; no character is cut
  std::size_t bytes = 0;    // of the part
  bool begins = true;       // the document
  bool ends = true;         // nothing follows, so text.size() == bytes
  std::int64_t offset = 0;  // of the part in the document, for messages
};

struct PartIds {
  // A boundary between tokens: encoding from byte `text` on gives the ids from `ids` on. Of two
  // neighbouring parts, encoded apart, all ids are those of the document up to a mark in the tail
  // of the one that is also in the head of the other, and from there on in the other.
  struct Mark {
    std::size_t text = 0, ids = 0;
  };
  static constexpr std::size_t kOverlap = 4096;  // bytes in which marks are kept

  std::vector<std::int32_t> ids;
  std::vector<Mark> head;    // in the first kOverlap bytes
  std::vector<Mark> tail;    // from the end of the part on
  std::optional<Mark> last;  // one of the last ones in the part
};

// Encodes parts by themselves. One thread; needs its tokenizer alive.
class PartEncoder {
 public:
  virtual ~PartEncoder() = default;
  virtual PartIds encode(const DocumentPart& part) = 0;
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
  // The id that may begin a document, if there is one.
  virtual std::optional<std::int32_t> bos_id() const { return std::nullopt; }
  virtual std::unique_ptr<TokenEncoder> encoder(const EncodeOptions& options) const = 0;
  virtual std::unique_ptr<TokenDecoder> decoder(const DecodeOptions& options) const = 0;
  // None if documents of this tokenizer must be encoded from front to back.
  virtual std::unique_ptr<PartEncoder> part_encoder(const EncodeOptions& options) const {
    (void)options;
    return nullptr;
  }
  // Text may be any bytes, not UTF-8 alone.
  virtual bool takes_any_bytes() const { return false; }
  std::unique_ptr<TokenEncoder> encoder() const { return encoder(EncodeOptions()); }
  std::unique_ptr<TokenDecoder> decoder() const { return decoder(DecodeOptions()); }

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;
};

// Id = byte, vocabulary 256. With an end token that is id 255, a byte that no UTF-8 text contains:
// text that does contain it is then refused (ErrorCode::data). Decoding leaves the end token out.
class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool with_eos = false) : with_eos_(with_eos) {}
  std::string name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return 256; }
  std::optional<std::int32_t> eos_id() const override;
  using Tokenizer::decoder;
  using Tokenizer::encoder;
  std::unique_ptr<TokenEncoder> encoder(const EncodeOptions& options) const override;
  std::unique_ptr<TokenDecoder> decoder(const DecodeOptions& options) const override;
  std::unique_ptr<PartEncoder> part_encoder(const EncodeOptions& options) const override;
  bool takes_any_bytes() const override { return true; }

 private:
  bool with_eos_;
};

}  // namespace dew
