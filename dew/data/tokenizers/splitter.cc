#include "dew/data/tokenizers/splitter.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/data/tokenizers/byte_characters.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::size_t kMostUtf8 = 4;

void append_marked(std::string_view text, const std::string& mark, std::string& out) {
  for (std::size_t at = text.find(' '); at != std::string_view::npos; at = text.find(' ')) {
    out += text.substr(0, at);
    out += mark;
    text.remove_prefix(at + 1);
  }
  out += text;
}

bool puts_prefix(PrefixWhen when, bool first) {
  return when == PrefixWhen::always || (when == PrefixWhen::first && first);
}

// A step that is no split, of text that is a whole piece or (fresh, then not) comes in parts.
void transform(const PreTokenizeStep& step, std::string_view text, bool fresh, bool first,
               std::string& out) {
  if (const auto* mark = std::get_if<MarkStep>(&step)) {
    const bool there = text.starts_with(' ') || text.starts_with(mark->mark);
    if (fresh && !there && puts_prefix(mark->prefix, first)) out += mark->mark;
    append_marked(text, mark->mark, out);
  } else if (std::holds_alternative<PrefixStep>(step)) {
    if (fresh && !text.starts_with(' ')) out += ' ';
    out += text;
  } else {
    append_byte_characters(text, out);
  }
}

// Segments of a text, matches and what is between them, to pieces by one behaviour. A piece is
// given when nothing more can join it.
template <typename Give>  // of begin and end
class Fold {
 public:
  Fold(SplitBehavior behavior, std::size_t begin, Give give)
      : behavior_(behavior), begin_(begin), end_(begin), give_(give) {}

  void add(std::size_t begin, std::size_t end, bool match) {
    switch (behavior_) {
      case SplitBehavior::isolated:
        start(begin, end);
        break;
      case SplitBehavior::removed:
        if (match) {
          finish();
          begin_ = end_ = end;
        } else {
          start(begin, end);
        }
        break;
      case SplitBehavior::contiguous:
        joins(match == matched_, begin, end);
        break;
      case SplitBehavior::merged_with_previous:
        joins(match && !matched_, begin, end);
        break;
      case SplitBehavior::merged_with_next:
        joins(matched_ && !match, begin, end);
        break;
    }
    matched_ = match;
  }

  // Gives the last piece too.
  void finish() {
    if (end_ > begin_) give_(begin_, end_);
    begin_ = end_;
  }

  // Where the piece begins that is not given yet.
  std::size_t open() const { return begin_; }

 private:
  void start(std::size_t begin, std::size_t end) {
    finish();
    begin_ = begin;
    end_ = end;
  }
  void joins(bool join, std::size_t begin, std::size_t end) {
    if (join && end_ > begin_) {
      end_ = end;
    } else {
      start(begin, end);
    }
  }

  SplitBehavior behavior_;
  std::size_t begin_, end_;
  bool matched_ = false;
  Give give_;
};

// Calls visit(begin, end, is a match) for the segments of text[from..) that are certain.
template <typename Visit>
void visit_segments(Matcher& matcher, std::string_view text, std::size_t from, bool complete,
                    Visit visit) {
  std::size_t before = from;  // the end of the last match
  std::size_t at = from;
  bool matched = false;
  while (at <= text.size()) {
    const PatternMatch match = matcher.find(text, at, complete);
    if (match.kind == PatternMatch::Kind::unfinished) return;
    if (match.kind == PatternMatch::Kind::none) break;
    const bool empty = match.end == match.begin;
    if (empty && (!complete && match.end == text.size())) return;
    // An empty match right behind another one is none.
    if (!empty || !matched || match.end != before) {
      if (match.begin > before) visit(before, match.begin, false);
      visit(match.begin, match.end, true);
      before = match.end;
      matched = true;
    }
    at = match.end;
    if (empty) {
      if (at == text.size()) break;
      at += front_code_point(text.substr(at)).bytes;
    }
  }
  if (complete && before < text.size()) visit(before, text.size(), false);
}

}  // namespace

Splitter::Splitter(const PreTokenizer& steps) : steps_(steps), first_split_(steps.size()) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto* split = std::get_if<SplitStep>(&steps[i]);
    matchers_.push_back(split == nullptr ? nullptr : std::make_unique<Matcher>(*split->pattern));
    if (split == nullptr) continue;
    if (first_split_ == steps.size()) {
      first_split_ = i;
      keep_ = kMostUtf8 * split->pattern->lookbehind();
    }
  }
}
Splitter::~Splitter() = default;

void Splitter::begin(bool first, bool goes_on) {
  text_.clear();
  batch_.clear();
  done_ = gone_ = 0;
  first_ = first;
  fresh_ = !goes_on;
  enough_ = 0;
  quiet_until_ = 0;
}

void Splitter::append(std::string_view text) {
  if (text.empty()) return;
  if (first_split_ == 0 || steps_.empty()) {
    text_ += text;
  } else {
    std::string from(text), to;
    for (std::size_t i = 0; i < first_split_; ++i) {
      to.clear();
      transform(steps_[i], from, fresh_, first_, to);
      std::swap(from, to);
    }
    text_ += from;
  }
  fresh_ = false;
}

void Splitter::feed(std::string_view text, const PieceSink& sink) {
  append(text);
  if (splits() && text_.size() >= enough_) drain(false, sink);
}

void Splitter::finish(const PieceSink& sink) {
  if (splits()) {
    drain(true, sink);
  } else if (!pending().empty()) {
    const std::string_view rest = pending();
    sink({&rest, 1});
  }
  begin(false);
}

void Splitter::drain(bool complete, const PieceSink& sink) {
  const auto& step = std::get<SplitStep>(steps_[first_split_]);
  const std::size_t begin = done_;
  Fold fold(step.behavior, begin, [&](std::size_t from, std::size_t to) { give(from, to, sink); });
  // Segments are found from done_ on, where a piece begins, so the fold begins there too.
  visit_segments(*matchers_[first_split_], text_, begin, complete,
                 [&](std::size_t from, std::size_t to, bool match) {
                   fold.add(from, to, match != step.invert);
                 });
  if (complete) fold.finish();
  flush(sink);
  if (complete) {
    done_ = text_.size();
  } else {
    done_ = fold.open();
    // A long piece without an end is looked at again when it has doubled.
    enough_ = 2 * (text_.size() - done_);
    forget_done();
  }
}

void Splitter::give(std::size_t from, std::size_t to, const PieceSink& sink) {
  const std::string_view piece = std::string_view(text_).substr(from, to - from);
  const std::size_t byte = gone_ + from;
  if (first_split_ + 1 < steps_.size()) {
    if (mark_) mark_(byte);
    return run(first_split_ + 1, piece, first_ && from == 0, sink);
  }
  if (batch_.size() == kBatch || (mark_ && byte >= quiet_until_)) {
    flush(sink);
    if (mark_) quiet_until_ = byte + mark_(byte);
  }
  batch_.push_back(piece);
}

void Splitter::flush(const PieceSink& sink) {
  if (!batch_.empty()) sink(batch_);
  batch_.clear();
}

void Splitter::forget_done() {
  std::size_t keep = std::min(keep_, done_);
  while (keep < done_ && (static_cast<unsigned char>(text_[done_ - keep]) & 0xc0) == 0x80) ++keep;
  text_.erase(0, done_ - keep);
  gone_ += done_ - keep;
  if (done_ > keep) first_ = false;
  done_ = keep;
}

void Splitter::split(std::size_t step, std::string_view piece, bool first, const PieceSink& sink) {
  const auto& split = std::get<SplitStep>(steps_[step]);
  Fold fold(split.behavior, 0, [&](std::size_t from, std::size_t to) {
    run(step + 1, piece.substr(from, to - from), first && from == 0, sink);
  });
  visit_segments(*matchers_[step], piece, 0, true,
                 [&](std::size_t from, std::size_t to, bool match) {
                   fold.add(from, to, match != split.invert);
                 });
  fold.finish();
}

void Splitter::run(std::size_t step, std::string_view piece, bool first, const PieceSink& sink) {
  if (step == steps_.size()) return sink({&piece, 1});
  if (std::holds_alternative<SplitStep>(steps_[step])) return split(step, piece, first, sink);
  std::string to;
  transform(steps_[step], piece, true, first, to);
  run(step + 1, to, first, sink);
}

}  // namespace dew
