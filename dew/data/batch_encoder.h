// Batches of text to ids: what each thread of tokenize() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/text_batches.h"
#include "dew/data/token_directory.h"
#include "dew/data/tokenizer.h"

namespace dew {

struct BatchEncoderOptions {
  IdType type = IdType::uint8;
  bool add_bos = false;
  bool special_in_text = false;
  bool skip_invalid = false;  // lines of JSON that are broken are left out
  std::string text_field = "text";
};

struct EncodedBatch {
  // Of whole documents, each with its begin and end token: the ids as they are stored.
  std::vector<std::byte> stored;
  std::int64_t tokens = 0, documents = 0, empty = 0, skipped = 0;
  std::int64_t bytes = 0;  // of text
  // Of a part; none if the tokenizer encodes from front to back only.
  std::optional<PartIds> part;
};

// Throws ErrorCode::data naming the first byte that is not UTF-8, if there is one. The text begins
// at `line` and `offset` of its source.
void require_utf8(std::string_view text, const std::string& source, std::int64_t line,
                  std::int64_t offset);

// The member `field` of each line of JSON of a batch, with the number of its line. Broken lines are
// ErrorCode::data, or counted.
using VisitText = std::function<void(std::string_view text, std::int64_t line)>;
void visit_json_lines(const TextBatch& batch, const std::string& field, bool skip_invalid,
                      std::int64_t& skipped, const VisitText& visit);

// Appends ids as they are stored. REQUIRES: all are in the vocabulary, whatever made them.
void append_stored(std::span<const std::int32_t> ids, IdType type, std::int64_t vocab_size,
                   std::vector<std::byte>& out);

// One document's ids with its begin and end token. A document that gets a begin token has one,
// however many its text spells in front, and no second end token where the text ends with one. If
// both are the same token, it stands between two documents once, so the front of all of them needs
// it.
class DocumentFrame {
 public:
  DocumentFrame(const Tokenizer& tokenizer, bool add_bos);
  // What is in front of the first document.
  std::optional<std::int32_t> front() const { return bos_ == eos_ ? bos_ : std::nullopt; }
  // The document's ids come, in as many calls as they like; `ids` is what to write.
  void add(std::span<const std::int32_t> from, std::vector<std::int32_t>& ids);
  void end(std::vector<std::int32_t>& ids);

 private:
  void begin(std::vector<std::int32_t>& ids);

  std::optional<std::int32_t> bos_, eos_, last_;
  bool begun_ = false;
};

// One thread; needs its tokenizer alive.
class BatchEncoder {
 public:
  BatchEncoder(const Tokenizer& tokenizer, const BatchEncoderOptions& options);

  // Throws ErrorCode::data with source, line and byte for text that is not UTF-8, and for lines of
  // JSON that are broken.
  EncodedBatch encode(const TextBatch& batch);

 private:
  void encode_documents(const TextBatch& batch, EncodedBatch& result);
  void encode_lines(const TextBatch& batch, EncodedBatch& result);
  void encode_part(const TextBatch& batch, EncodedBatch& result);
  void document(std::string_view text, EncodedBatch& result);

  const Tokenizer& tokenizer_;
  BatchEncoderOptions options_;
  std::unique_ptr<TokenEncoder> encoder_;
  std::unique_ptr<PartEncoder> parts_;
  DocumentFrame frame_;
  std::vector<std::int32_t> ids_, framed_;
};

}  // namespace dew
