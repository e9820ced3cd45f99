// Encoders of FileTokenizer: streams, and parts of long documents.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/file_tokenizer.h"

namespace dew {

// Text goes through three buffers: raw, where added tokens are found; normalized, where those are
// found that are looked for there; and the splitter's. Each keeps what is not certain yet.
class FileEncoder final : public TokenEncoder {
 public:
  FileEncoder(const FileTokenizer& tokenizer, const EncodeOptions& options);

  void feed(std::string_view text, std::vector<std::int32_t>& ids) override;
  void finish(std::vector<std::int32_t>& ids) override;

  // From here on `mark` is called as the splitter's is, with bytes of the document, and never again
  // after text that normalizing has changed: then bytes are not known. REQUIRES: the first step of
  // the pre-tokenizer is a split.
  using Mark = Splitter::Mark;
  void trace(Mark mark);
  // Forgets the document.
  void reset();

 private:
  void begin_document(std::vector<std::int32_t>& ids);
  void take_valid(std::string_view text);
  void take(std::string_view text);
  [[noreturn]] void refuse();
  void pass(bool complete, std::vector<std::int32_t>& ids);
  void feed_section(std::size_t begin, std::string_view text, std::vector<std::int32_t>& ids);
  void follow(std::string_view normal);
  void end_section(std::vector<std::int32_t>& ids);
  void add_normal(std::string_view text, std::vector<std::int32_t>& ids);
  void pass_normal(bool complete, std::vector<std::int32_t>& ids);
  void feed_text(std::size_t begin, std::string_view text, std::vector<std::int32_t>& ids);
  void end_text(std::vector<std::int32_t>& ids);

  const FileTokenizer& tokenizer_;
  EncodeOptions options_;
  Normalizer normalizer_;
  Splitter splitter_;
  std::unique_ptr<PieceEncoder> pieces_;

  std::string cut_;  // the beginning of a character
  std::string raw_, normal_;
  AddedTokenFinder::Place raw_done_, normal_done_;
  std::size_t enough_, enough_piece_;  // bytes that are worth a pass
  std::int64_t offset_ = 0;            // of the document, in front of cut_
  bool begun_ = false;                 // something of the document came
  bool at_begin_;                      // nothing is before the text that comes next
  bool goes_on_;                       // what is before it belongs to it
  bool in_section_ = false, in_text_ = false;

  // Only of a document that comes in one call of feed(), for trace().
  Mark mark_;
  std::size_t section_begin_ = 0;  // places in raw_: of the section,
  std::size_t followed_ = 0;       // of what was normalized last,
  std::size_t text_begin_ = 0;     // and of the splitter's text
};

// Parts of documents; see Tokenizer::part_encoder. None if the tokenizer cannot begin anywhere but
// at the front.
std::unique_ptr<PartEncoder> make_part_encoder(const FileTokenizer& tokenizer,
                                               const EncodeOptions& options);

}  // namespace dew
