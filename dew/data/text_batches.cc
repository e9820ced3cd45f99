#include "dew/data/text_batches.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::size_t kLeastRead = std::size_t{1} << 16;

std::int64_t count_lines(std::string_view text) { return std::ranges::count(text, '\n'); }

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

TextBatches::TextBatches(const TextInputs& inputs, const TextBatchOptions& options)
    : inputs_(inputs), options_(options) {}

std::int64_t TextBatches::bytes_taken() const {
  return closed_bytes_ + (source_ ? source_->bytes_taken() : 0);
}

bool TextBatches::open_next() {
  if (next_input_ == inputs_.files.size()) return false;
  const TextInput& input = inputs_.files[next_input_++];
  source_ = std::make_unique<TextSource>(input.path);
  name_ = source_name(input.path);
  json_lines_ = input.json_lines;
  held_.clear();
  checked_ = 0;
  file_ends_ = false;
  document_begins_ = true;
  line_ = 1;
  offset_ = 0;
  return true;
}

void TextBatches::close() {
  closed_bytes_ += source_->bytes_taken();
  source_.reset();
}

// Bytes of held_ that may be given.
std::size_t TextBatches::available() const {
  return options_.skip_invalid && !json_lines_ ? checked_ : held_.size();
}

// Reads until so many bytes are available or the file ends.
void TextBatches::fill(std::size_t bytes) {
  while (available() < bytes && !file_ends_) {
    const std::size_t old = held_.size(), wanted = std::max(bytes - available(), kLeastRead);
    held_.resize(old + wanted);
    const std::size_t got = source_->read(std::span(held_).subspan(old));
    file_ends_ = got < wanted;
    held_.resize(old + got);
    if (options_.skip_invalid && !json_lines_) leave_out_invalid();
  }
}

// Takes lines out of what was read last. The last line waits for its end, unless it is so long that
// nobody could mean it as one.
void TextBatches::leave_out_invalid() {
  std::string kept = held_.substr(0, checked_);
  std::string_view rest = std::string_view(held_).substr(checked_);
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const bool whole = end != std::string_view::npos || file_ends_;
    if (!whole && rest.size() <= kMostLine) break;
    const std::string_view line = rest.substr(0, std::min(end, rest.size() - 1) + 1);
    if (valid_utf8_prefix(line) == line.size()) {
      kept += line;
    } else {
      ++skipped_;
    }
    rest.remove_prefix(line.size());
  }
  checked_ = kept.size();
  kept += rest;
  held_ = std::move(kept);
}

std::optional<TextBatch> TextBatches::next() {
  std::optional<TextBatch> batch = read();
  if (batch) batch->taken = bytes_taken();
  return batch;
}

std::optional<TextBatch> TextBatches::read() {
  TextBatch small;  // documents that are less than a batch
  for (;;) {
    if (!source_) {
      if (small.text.size() >= options_.batch_bytes || !open_next()) break;
      if (json_lines_ && !small.documents.empty()) return small;
    }
    if (json_lines_) {
      if (auto lines = next_lines()) return lines;
      continue;
    }
    if (document_begins_) {
      fill(options_.batch_bytes + options_.overlap);
      if (file_ends_ && available() <= options_.batch_bytes) {
        add_document(small);
        continue;
      }
    }
    if (!small.documents.empty()) return small;
    return next_part();
  }
  if (small.documents.empty()) return std::nullopt;
  return small;
}

void TextBatches::add_document(TextBatch& batch) {
  if (held_.empty()) {
    ++empty_;
  } else {
    batch.text += held_;
    batch.documents.push_back({name_, batch.text.size()});
  }
  close();
}

// Whole lines; none at the end of the file.
std::optional<TextBatch> TextBatches::next_lines() {
  std::size_t wanted = options_.batch_bytes;
  std::size_t end = std::string::npos;
  for (;;) {
    fill(wanted);
    end = held_.rfind('\n');
    if (end != std::string::npos || file_ends_) break;
    if (held_.size() > kMostLine)
      fail(ErrorCode::data,
           format("{}: line {} is longer than {} MiB", name_, line_, kMostLine >> 20));
    wanted *= 2;
  }
  const std::size_t size = file_ends_ ? held_.size() : end + 1;
  if (size == 0) {
    close();
    return std::nullopt;
  }
  TextBatch batch;
  batch.kind = TextBatch::Kind::lines;
  batch.source = name_;
  batch.line = line_;
  batch.offset = offset_;
  batch.text = held_.substr(0, size);
  held_.erase(0, size);
  line_ += count_lines(batch.text);
  offset_ += static_cast<std::int64_t>(size);
  return batch;
}

// Where a part ends: at a character, and if possible between a line that does not end with blanks
// and one that begins with a letter, where most tokenizers have a boundary.
std::size_t TextBatches::part_end() const {
  const std::size_t most = options_.batch_bytes, least = most - most / 8;
  for (std::size_t end = most; end > least && end > 1; --end) {
    if (held_[end - 1] == '\n' && is_ascii_letter(held_[end]) && !is_blank(held_[end - 2]))
      return end;
  }
  std::size_t end = most;
  while (end > most - 4 && continues_character(held_[end])) --end;
  return end;
}

std::optional<TextBatch> TextBatches::next_part() {
  fill(options_.batch_bytes + options_.overlap);
  TextBatch batch;
  batch.kind = TextBatch::Kind::part;
  batch.source = name_;
  batch.line = line_;
  batch.offset = offset_;
  batch.begins = std::exchange(document_begins_, false);
  batch.ends = file_ends_ && available() <= options_.batch_bytes + options_.overlap;
  batch.bytes = batch.ends ? available() : part_end();
  std::size_t size = std::min(available(), batch.bytes + options_.overlap);
  while (size < held_.size() && size > batch.bytes && continues_character(held_[size])) --size;
  // What is cut off at the end of what was read is no whole character either.
  if (size == held_.size() && !batch.ends) {
    const std::string_view behind = std::string_view(held_).substr(batch.bytes, size - batch.bytes);
    size = batch.bytes + valid_utf8_prefix(behind);
  }
  batch.text = held_.substr(0, size);
  line_ += count_lines(std::string_view(batch.text).substr(0, batch.bytes));
  offset_ += static_cast<std::int64_t>(batch.bytes);
  held_.erase(0, batch.bytes);
  checked_ -= std::min(checked_, batch.bytes);
  if (batch.ends) close();
  return batch;
}

}  // namespace dew
