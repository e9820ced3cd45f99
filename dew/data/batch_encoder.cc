#include "dew/data/batch_encoder.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/json_lines.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

EncodeOptions encode_options(const BatchEncoderOptions& options) {
  return {.special_in_text = options.special_in_text};
}

template <typename T>
void append_as(std::span<const std::int32_t> ids, std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  out.resize(begin + ids.size() * sizeof(T));
  T* to = reinterpret_cast<T*>(out.data() + begin);
  std::ranges::transform(ids, to, [](std::int32_t id) { return static_cast<T>(id); });
}

// Errors of encoders do not know where their text comes from.
template <typename Work>
void with_place(const std::string& place, Work work) {
  try {
    work();
  } catch (const Error& error) {
    fail(error.code(), format("{}: {}", place, error.what()), error.hint());
  }
}

}  // namespace

// Names the first byte that is not UTF-8, if there is one. The text begins at `line` and `offset`
// of its source.
void require_utf8(std::string_view text, const std::string& source, std::int64_t line,
                  std::int64_t offset) {
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return;
  const std::string_view before = text.substr(0, valid);
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  line += std::ranges::count(before, '\n');
  fail(ErrorCode::data,
       format("{}: line {}, byte {} (byte {} of all): 0x{:02x} is not UTF-8", source, line,
              valid - line_begin + 1, offset + static_cast<std::int64_t>(valid) + 1,
              static_cast<unsigned char>(text[valid])),
       "--skip-invalid leaves such lines out");
}

void visit_json_lines(const TextBatch& batch, const std::string& field, bool skip_invalid,
                      std::int64_t& skipped, const VisitText& visit) {
  std::string_view rest = batch.text;
  for (std::int64_t number = batch.line; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const JsonLine line = read_json_line(rest.substr(0, end), field);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.blank) continue;
    if (line.fault.empty()) {
      visit(line.text, number);
    } else if (skip_invalid) {
      ++skipped;
    } else {
      const std::string byte = line.fault_byte > 0 ? format(", byte {}", line.fault_byte) : "";
      fail(ErrorCode::data, format("{}: line {}{}: {}", batch.source, number, byte, line.fault),
           "--skip-invalid leaves such lines out");
    }
  }
}

void append_stored(std::span<const std::int32_t> ids, IdType type, std::int64_t vocab_size,
                   std::vector<std::byte>& out) {
  // As unsigned numbers, negative ids are too large as well.
  std::uint32_t largest = 0;
  for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
  DEW_CHECK(largest < vocab_size || ids.empty(), format("the tokenizer made id {}", largest));
  switch (type) {
    case IdType::uint8:
      return append_as<std::uint8_t>(ids, out);
    case IdType::uint16:
      return append_as<std::uint16_t>(ids, out);
    case IdType::uint32:
      return append_as<std::uint32_t>(ids, out);
  }
}

DocumentFrame::DocumentFrame(const Tokenizer& tokenizer, bool add_bos)
    : bos_(add_bos ? tokenizer.bos_id() : std::nullopt), eos_(tokenizer.eos_id()) {}

void DocumentFrame::begin(std::vector<std::int32_t>& ids) {
  if (begun_) return;
  begun_ = true;
  if (bos_ && bos_ != eos_) ids.push_back(*bos_);
  last_ = bos_;
}

void DocumentFrame::add(std::span<const std::int32_t> from, std::vector<std::int32_t>& ids) {
  while (!begun_ && bos_ && !from.empty() && from.front() == *bos_) from = from.subspan(1);
  if (from.empty()) return;
  begin(ids);
  ids.insert(ids.end(), from.begin(), from.end());
  last_ = from.back();
}

void DocumentFrame::end(std::vector<std::int32_t>& ids) {
  begin(ids);
  if (eos_ && last_ != eos_) ids.push_back(*eos_);
  begun_ = false;
  last_.reset();
}

BatchEncoder::BatchEncoder(const Tokenizer& tokenizer, const BatchEncoderOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      encoder_(tokenizer.encoder(encode_options(options))),
      parts_(tokenizer.part_encoder(encode_options(options))),
      frame_(tokenizer, options.add_bos) {}

EncodedBatch BatchEncoder::encode(const TextBatch& batch) {
  EncodedBatch result;
  switch (batch.kind) {
    case TextBatch::Kind::documents:
      encode_documents(batch, result);
      break;
    case TextBatch::Kind::lines:
      encode_lines(batch, result);
      break;
    case TextBatch::Kind::part:
      encode_part(batch, result);
      break;
  }
  return result;
}

void BatchEncoder::document(std::string_view text, EncodedBatch& result) {
  ids_.clear();
  framed_.clear();
  encoder_->feed(text, ids_);
  encoder_->finish(ids_);
  frame_.add(ids_, framed_);
  frame_.end(framed_);
  append_stored(framed_, options_.type, tokenizer_.vocab_size(), result.stored);
  result.tokens += static_cast<std::int64_t>(framed_.size());
  result.bytes += static_cast<std::int64_t>(text.size());
  ++result.documents;
}

void BatchEncoder::encode_documents(const TextBatch& batch, EncodedBatch& result) {
  std::size_t begin = 0;
  for (const TextBatch::Document& d : batch.documents) {
    const std::string_view text = std::string_view(batch.text).substr(begin, d.end - begin);
    if (!tokenizer_.takes_any_bytes()) require_utf8(text, d.source, 1, 0);
    with_place(d.source, [&] { document(text, result); });
    begin = d.end;
  }
}

void BatchEncoder::encode_lines(const TextBatch& batch, EncodedBatch& result) {
  visit_json_lines(batch, options_.text_field, options_.skip_invalid, result.skipped,
                   [&](std::string_view text, std::int64_t line) {
                     if (text.empty()) {
                       ++result.empty;
                       return;
                     }
                     with_place(format("{}: line {}", batch.source, line),
                                [&] { document(text, result); });
                   });
}

void BatchEncoder::encode_part(const TextBatch& batch, EncodedBatch& result) {
  const std::string_view text = batch.text;
  if (!tokenizer_.takes_any_bytes())
    require_utf8(text.substr(0, batch.bytes), batch.source, batch.line, batch.offset);
  result.bytes = static_cast<std::int64_t>(batch.bytes);
  if (parts_ == nullptr) return;
  with_place(batch.source, [&] {
    result.part = parts_->encode({.text = text,
                                  .bytes = batch.bytes,
                                  .begins = batch.begins,
                                  .ends = batch.ends,
                                  .offset = batch.offset});
  });
}

}  // namespace dew
