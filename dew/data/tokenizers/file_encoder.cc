#include "dew/data/tokenizers/file_encoder.h"

#include <algorithm>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;
constexpr std::size_t kMostUtf8 = 4;

// Forgets what is before the place but for the last character, which is looked back at.
void forget(std::string& text, AddedTokenFinder::Place& place) {
  const std::size_t done = std::min(place.given, place.search);
  std::size_t keep = std::min(done, kMostUtf8);
  while (keep < done && (static_cast<unsigned char>(text[done - keep]) & 0xc0) == 0x80) ++keep;
  text.erase(0, done - keep);
  place.given -= done - keep;
  place.search -= done - keep;
}

}  // namespace

FileEncoder::FileEncoder(const FileTokenizer& tokenizer, const EncodeOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      normalizer_(tokenizer.parts().normalizer),
      splitter_(tokenizer.parts().pre_tokenizer),
      pieces_(tokenizer.parts().model->encoder()),
      enough_(kBlock),
      enough_piece_(kBlock),
      at_begin_(!options.continues),
      goes_on_(options.continues) {}

void FileEncoder::feed(std::string_view text, std::vector<std::int32_t>& ids) {
  begin_document(ids);
  take_valid(text);
  if (raw_.size() - raw_done_.given >= enough_) pass(false, ids);
}

void FileEncoder::finish(std::vector<std::int32_t>& ids) {
  begin_document(ids);
  if (!cut_.empty()) refuse();
  pass(true, ids);
  if (options_.frame)
    ids.insert(ids.end(), tokenizer_.parts().behind.begin(), tokenizer_.parts().behind.end());
  reset();
}

void FileEncoder::reset() {
  cut_.clear();
  raw_.clear();
  normal_.clear();
  raw_done_ = normal_done_ = {};
  followed_ = 0;
  offset_ = 0;
  enough_ = enough_piece_ = kBlock;
  begun_ = in_section_ = in_text_ = false;
  at_begin_ = !options_.continues;
  goes_on_ = options_.continues;
}

void FileEncoder::begin_document(std::vector<std::int32_t>& ids) {
  if (!begun_ && options_.frame)
    ids.insert(ids.end(), tokenizer_.parts().before.begin(), tokenizer_.parts().before.end());
  begun_ = true;
}

// ---- bytes to characters

void FileEncoder::take_valid(std::string_view text) {
  while (!cut_.empty() && !text.empty()) {  // a character that an earlier text began
    cut_ += text[0];
    text.remove_prefix(1);
    const Utf8Front front = utf8_front(cut_);
    if (front.kind == Utf8Front::Kind::broken) refuse();
    if (front.kind == Utf8Front::Kind::unfinished) continue;
    take(cut_);
    cut_.clear();
  }
  const std::size_t valid = valid_utf8_prefix(text);
  take(text.substr(0, valid));
  cut_ += text.substr(valid);
  if (!cut_.empty() && utf8_front(cut_).kind == Utf8Front::Kind::broken) refuse();
}

void FileEncoder::take(std::string_view text) {
  raw_ += text;
  offset_ += static_cast<std::int64_t>(text.size());
}

void FileEncoder::refuse() {
  const auto offset = offset_;
  const auto byte = static_cast<unsigned char>(cut_[0]);
  reset();
  fail(ErrorCode::data, format("byte {} of the text, 0x{:02x}, is not UTF-8", offset, byte));
}

// ---- added tokens in the text as it is

void FileEncoder::pass(bool complete, std::vector<std::int32_t>& ids) {
  tokenizer_.raw_finder().visit(
      raw_, raw_done_, complete, options_.special_in_text,
      [&](const AddedTokenFinder::Found& found) {
        if (found.token != nullptr) {
          end_section(ids);
          ids.push_back(found.token->id);
        } else {
          feed_section(found.begin,
                       std::string_view(raw_).substr(found.begin, found.end - found.begin), ids);
        }
      });
  if (complete) return end_section(ids);
  if (!mark_) forget(raw_, raw_done_);
  // What waits for its end is looked at again when it has doubled.
  enough_ = std::max(kBlock, 2 * (raw_.size() - raw_done_.given));
}

// ---- text between added tokens

void FileEncoder::feed_section(std::size_t begin, std::string_view text,
                               std::vector<std::int32_t>& ids) {
  if (!in_section_) {
    normalizer_.begin(goes_on_);
    followed_ = section_begin_ = begin;
  }
  in_section_ = true;
  if (normalizer_.changes_nothing()) return add_normal(text, ids);
  std::string out;
  normalizer_.feed(text, out);
  if (normalizer_.front_is_gone()) at_begin_ = false;
  add_normal(out, ids);
}

void FileEncoder::end_section(std::vector<std::int32_t>& ids) {
  if (in_section_) {
    std::string out;
    normalizer_.finish(out);
    if (normalizer_.front_is_gone()) at_begin_ = false;
    add_normal(out, ids);
    if (!tokenizer_.normal_finder().empty()) pass_normal(true, ids);
    end_text(ids);
  }
  in_section_ = at_begin_ = goes_on_ = false;
  normal_.clear();
  normal_done_ = {};
}

// Whether normalized text is the text that it was made from.
void FileEncoder::follow(std::string_view normal) {
  if (mark_ && raw_.compare(followed_, normal.size(), normal) != 0) mark_ = nullptr;
  followed_ += normal.size();
}

// ---- added tokens in normalized text

void FileEncoder::add_normal(std::string_view text, std::vector<std::int32_t>& ids) {
  const std::size_t begin = followed_;
  follow(text);
  if (tokenizer_.normal_finder().empty()) return feed_text(begin, text, ids);
  normal_ += text;
  pass_normal(false, ids);
}

void FileEncoder::pass_normal(bool complete, std::vector<std::int32_t>& ids) {
  tokenizer_.normal_finder().visit(
      normal_, normal_done_, complete, options_.special_in_text,
      [&](const AddedTokenFinder::Found& found) {
        if (found.token != nullptr) {
          end_text(ids);
          ids.push_back(found.token->id);
          at_begin_ = goes_on_ = false;
        } else {
          feed_text(section_begin_ + found.begin,
                    std::string_view(normal_).substr(found.begin, found.end - found.begin), ids);
        }
      });
  if (!complete && !mark_) forget(normal_, normal_done_);
}

// ---- text to pieces to ids

void FileEncoder::feed_text(std::size_t begin, std::string_view text,
                            std::vector<std::int32_t>& ids) {
  if (text.empty()) return;
  if (!in_text_) {
    pieces_->forget_front();
    splitter_.begin(at_begin_, goes_on_);
    text_begin_ = begin;
  }
  in_text_ = true;
  splitter_.feed(text, [&](auto pieces) { pieces_->encode_all(pieces, ids); });
  if (splitter_.splits()) return;
  const std::string_view pending = splitter_.pending();
  if (pending.size() < enough_piece_) return;
  const std::size_t part = pieces_->separable(pending);
  if (part > 0) pieces_->encode_front(pending.substr(0, part), ids);
  splitter_.take(part);
  enough_piece_ = std::max(kBlock, 2 * (pending.size() - part));
}

void FileEncoder::end_text(std::vector<std::int32_t>& ids) {
  if (!in_text_) return;
  splitter_.finish([&](auto pieces) { pieces_->encode_all(pieces, ids); });
  in_text_ = at_begin_ = goes_on_ = false;
  enough_piece_ = kBlock;
}

void FileEncoder::trace(Mark mark) {
  mark_ = std::move(mark);
  splitter_.trace([this](std::size_t offset) { return mark_ ? mark_(text_begin_ + offset) : 0; });
}

}  // namespace dew
