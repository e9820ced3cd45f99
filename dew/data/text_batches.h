// Text files cut into pieces of work, in order: several small documents, lines of JSON, or a part
// of a long document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dew/data/text_inputs.h"
#include "dew/data/text_source.h"

namespace dew {

struct TextBatch {
  enum class Kind : std::uint8_t { documents, lines, part };
  struct Document {
    std::string source;   // its name in messages
    std::size_t end = 0;  // in `text`
  };

  Kind kind = Kind::documents;
  std::string text;
  std::vector<Document> documents;  // of Kind::documents
  // Of the other kinds: the source and where in it the text begins.
  std::string source;
  std::int64_t line = 1, offset = 0;
  // Of a part: bytes of its own, behind which is some of what follows; what it is of its document.
  std::size_t bytes = 0;
  bool begins = true, ends = true;
  std::int64_t taken = 0;  // bytes of the files, as they are stored, up to here
};

struct TextBatchOptions {
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::size_t overlap = 4096;  // of parts
  // Lines of text (not of JSON) that are not UTF-8 are left out and counted.
  bool skip_invalid = false;
};

// Reads the inputs from front to back. Nothing larger than a few batches is in memory, but for a
// line of JSON: one of more than kMostLine bytes is ErrorCode::data.
class TextBatches {
 public:
  static constexpr std::size_t kMostLine = std::size_t{1} << 28;

  TextBatches(const TextInputs& inputs, const TextBatchOptions& options);

  // The next one; none at the end.
  std::optional<TextBatch> next();

  std::int64_t empty_documents() const { return empty_; }  // files of 0 bytes
  std::int64_t skipped_lines() const { return skipped_; }

 private:
  std::int64_t bytes_taken() const;
  bool open_next();
  std::size_t available() const;
  void fill(std::size_t bytes);
  void close();
  std::optional<TextBatch> read();
  std::optional<TextBatch> next_lines();
  std::optional<TextBatch> next_part();
  void add_document(TextBatch& batch);
  void leave_out_invalid();
  std::size_t part_end() const;

  const TextInputs& inputs_;
  TextBatchOptions options_;
  std::size_t next_input_ = 0;
  std::unique_ptr<TextSource> source_;  // none: between inputs
  bool json_lines_ = false;
  std::string name_;
  std::string held_;         // read and not given
  std::size_t checked_ = 0;  // bytes of held_ whose lines are known to be UTF-8
  bool file_ends_ = false;   // nothing comes behind held_
  bool document_begins_ = true;
  std::int64_t line_ = 1, offset_ = 0;  // of held_ in its source
  std::int64_t closed_bytes_ = 0, empty_ = 0, skipped_ = 0;
};

}  // namespace dew
