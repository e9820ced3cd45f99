// The ids of long documents from those of their parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/batch_encoder.h"
#include "dew/data/text_batches.h"
#include "dew/data/token_directory.h"
#include "dew/data/tokenizer.h"

namespace dew {

// The stream of all ids, before it is split.
class IdWriter {
 public:
  IdWriter(const Path& path, std::int64_t vocab_size);

  void write(std::span<const std::int32_t> ids);
  void write_stored(std::span<const std::byte> bytes, std::int64_t ids);
  void close() { writer_.close(); }
  std::int64_t count() const { return count_; }
  IdType type() const { return type_; }

 private:
  std::int64_t vocab_size_;
  IdType type_;
  FileWriter writer_;
  std::int64_t count_ = 0;
  std::vector<std::byte> stored_;
};

// Takes the parts of documents in order. Two neighbours are joined at a mark that both have. Where
// there is none, the document goes on from front to back, here: as exact, and slower.
class PartJoiner {
 public:
  PartJoiner(const Tokenizer& tokenizer, const EncodeOptions& options, bool add_bos, IdWriter& out);

  // REQUIRES: a document's first part comes behind the last one of another. `ids` is none if the
  // tokenizer encodes from front to back only.
  void add(TextBatch part, std::optional<PartIds> ids);

 private:
  struct Held {  // a part whose end is not known yet
    TextBatch part;
    PartIds ids;
    PartIds::Mark from;  // what is before it is written
  };

  void begin(TextBatch part, std::optional<PartIds> ids);
  void follow(TextBatch part, PartIds ids);
  void write_held(std::size_t end);
  void go_front_to_back(bool continues, std::string_view text);
  void feed(std::string_view text);
  void end_document();

  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  IdWriter& out_;
  DocumentFrame frame_;
  std::optional<Held> held_;
  std::unique_ptr<TokenEncoder> encoder_;  // at work from front to back
  std::vector<std::int32_t> ids_, framed_;
};

}  // namespace dew
