#include "dew/data/part_joiner.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

struct Meeting {
  PartIds::Mark before, behind;
};

// The first mark in the tail of one part that is in the head of the next, which begins at its byte
// `bytes`.
std::optional<Meeting> meeting_of(const PartIds& before, std::size_t bytes, const PartIds& behind) {
  auto head = behind.head.begin();
  for (const PartIds::Mark& mark : before.tail) {
    const std::size_t text = mark.text - bytes;
    while (head != behind.head.end() && head->text < text) ++head;
    if (head == behind.head.end()) return std::nullopt;
    if (head->text == text) return Meeting{mark, *head};
  }
  return std::nullopt;
}

std::string_view own_text(const TextBatch& part) {
  return std::string_view(part.text).substr(0, part.bytes);
}

}  // namespace

IdWriter::IdWriter(const Path& path, std::int64_t vocab_size)
    : vocab_size_(vocab_size), type_(id_type_for(vocab_size)), writer_(path, ErrorCode::data) {}

void IdWriter::write(std::span<const std::int32_t> ids) {
  stored_.clear();
  append_stored(ids, type_, vocab_size_, stored_);
  write_stored(stored_, static_cast<std::int64_t>(ids.size()));
}

void IdWriter::write_stored(std::span<const std::byte> bytes, std::int64_t ids) {
  writer_.write(bytes);
  count_ += ids;
}

PartJoiner::PartJoiner(const Tokenizer& tokenizer, const EncodeOptions& options, bool add_bos,
                       IdWriter& out)
    : tokenizer_(tokenizer), options_(options), out_(out), frame_(tokenizer, add_bos) {}

void PartJoiner::add(TextBatch part, std::optional<PartIds> ids) {
  const bool ends = part.ends;
  if (part.begins) {
    begin(std::move(part), std::move(ids));
  } else if (encoder_ != nullptr) {
    feed(own_text(part));
  } else {
    DEW_CHECK(held_ && ids, "a part of no document");
    follow(std::move(part), std::move(*ids));
  }
  if (ends) end_document();
}

void PartJoiner::begin(TextBatch part, std::optional<PartIds> ids) {
  if (ids) {
    held_ = Held{std::move(part), std::move(*ids), {}};
  } else {
    go_front_to_back(false, own_text(part));
  }
}

void PartJoiner::follow(TextBatch part, PartIds ids) {
  if (const auto meeting = meeting_of(held_->ids, held_->part.bytes, ids)) {
    write_held(meeting->before.ids);
    held_ = Held{std::move(part), std::move(ids), meeting->behind};
    return;
  }
  // From the last boundary that is known on.
  PartIds::Mark from = held_->from;
  if (held_->ids.last && held_->ids.last->text > from.text) from = *held_->ids.last;
  write_held(from.ids);
  const Held held = std::move(*held_);
  held_.reset();
  go_front_to_back(!held.part.begins || from.text > 0, own_text(held.part).substr(from.text));
  feed(own_text(part));
}

void PartJoiner::write_held(std::size_t end) {
  framed_.clear();
  frame_.add(std::span(held_->ids.ids).first(end).subspan(held_->from.ids), framed_);
  out_.write(framed_);
}

void PartJoiner::go_front_to_back(bool continues, std::string_view text) {
  EncodeOptions options = options_;
  options.continues = continues;
  encoder_ = tokenizer_.encoder(options);
  feed(text);
}

void PartJoiner::feed(std::string_view text) {
  ids_.clear();
  framed_.clear();
  encoder_->feed(text, ids_);
  frame_.add(ids_, framed_);
  out_.write(framed_);
}

void PartJoiner::end_document() {
  ids_.clear();
  if (encoder_ != nullptr) {
    encoder_->finish(ids_);
    encoder_.reset();
  } else {
    write_held(held_->ids.ids.size());
    held_.reset();
  }
  framed_.clear();
  frame_.add(ids_, framed_);
  frame_.end(framed_);
  out_.write(framed_);
}

}  // namespace dew
