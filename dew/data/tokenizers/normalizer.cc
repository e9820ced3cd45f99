#include "dew/data/tokenizers/normalizer.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

bool nmt_drops(std::uint32_t c) {
  return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
         c == 0x9f;
}

bool nmt_blanks(std::uint32_t c) {
  return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
         c == 0xfffd;
}

// Calls visit(code point, its text) for each character.
template <typename Visit>
void each_character(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const CodePoint c = front_code_point(text);
    visit(c.value, text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
}

void append_lower(std::string_view text, std::string& out) {
  constexpr std::uint32_t kDottedI = 0x130;  // the one that becomes two characters
  each_character(text, [&](std::uint32_t c, std::string_view) {
    if (c == kDottedI) {
      out += "i\xcc\x87";
    } else {
      append_utf8(lower_case(c), out);
    }
  });
}

std::string_view stripped(std::string_view text, const StripStep& step) {
  while (step.left && !text.empty()) {
    const CodePoint c = front_code_point(text);
    if (!is_white_space(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (step.right && !text.empty()) {
    const CodePoint c = back_code_point(text);
    if (!is_white_space(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

// Whether nothing is left of what a text begins with.
bool drops_front(const NormalizeStep& step, std::string_view text) {
  const std::uint32_t front = front_code_point(text).value;
  if (std::holds_alternative<NmtStep>(step)) return nmt_drops(front);
  if (std::holds_alternative<StripAccentsStep>(step)) return is_mark(front);
  if (const auto* strip = std::get_if<StripStep>(&step))
    return strip->left && is_white_space(front);
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
    if (!replace->by.empty()) return false;
    if (!replace->literal.empty()) return text.starts_with(replace->literal);
    const PatternMatch match = Matcher(*replace->pattern).find(text, 0, true);
    return match.kind == PatternMatch::Kind::found && match.begin == 0;
  }
  if (const auto* map = std::get_if<CharMapStep>(&step)) {
    std::string left;
    const std::string_view cluster = GraphemeReader(text).next();
    GrownText grown(left, GrownText::most_of(cluster.size()));
    map->map->append_replaced(cluster, grown);
    return left.empty();
  }
  return false;
}

bool printable_ascii(std::uint32_t c) { return c >= 0x20 && c < 0x7f; }

}  // namespace

void GrownText::refuse() const {
  fail(ErrorCode::data,
       format("the tokenizer's steps make more than {} bytes of this text, as no tokenizer should",
              most_));
}

void append_replaced(std::string_view text, const ReplaceStep& step, GrownText& out) {
  if (!step.literal.empty()) {
    std::size_t at = 0;
    for (std::size_t hit = text.find(step.literal); hit != std::string_view::npos;
         hit = text.find(step.literal, at)) {
      out += text.substr(at, hit - at);
      out += step.by;
      at = hit + step.literal.size();
    }
    out += text.substr(at);
    return;
  }
  Matcher matcher(*step.pattern);
  std::size_t at = 0, copied = 0;
  while (at <= text.size()) {
    const PatternMatch match = matcher.find(text, at, true);
    if (match.kind != PatternMatch::Kind::found) break;
    const bool empty = match.begin == match.end;
    if (!empty || match.begin != copied || copied == 0) {
      out += text.substr(copied, match.begin - copied);
      out += step.by;
      copied = match.end;
    }
    at = match.end;
    if (empty) {
      if (at == text.size()) break;
      at += front_code_point(text.substr(at)).bytes;
    }
  }
  out += text.substr(copied);
}

Normalizer::Normalizer(const NormalizerSteps& steps) : steps_(steps), begun_(steps.size()) {
  for (const NormalizeStep& step : steps) cut_ = std::max(cut_, cut_of(step));
}

Normalizer::Cut Normalizer::cut_of(const NormalizeStep& step) {
  if (std::holds_alternative<NormalForm>(step)) return Cut::normal_parts;
  if (std::holds_alternative<NmtStep>(step) || std::holds_alternative<CharMapStep>(step))
    return Cut::between_ascii;
  if (std::holds_alternative<StripStep>(step)) return Cut::nowhere;
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
    const std::string& from = replace->literal;
    const bool one = !from.empty() && front_code_point(from).bytes == from.size();
    return one ? Cut::anywhere : Cut::nowhere;
  }
  return Cut::anywhere;
}

void Normalizer::begin(bool goes_on) {
  held_.clear();
  begun_.assign(steps_.size(), goes_on);
  front_is_gone_ = false;
}

std::size_t Normalizer::certain(std::string_view text) const {
  if (cut_ == Cut::anywhere) return text.size();
  if (cut_ == Cut::nowhere) return 0;
  for (std::size_t end = text.size(); end > 0;) {
    const CodePoint last = back_code_point(text.substr(0, end));
    end -= last.bytes;
    if (end == 0) break;
    if (cut_ == Cut::normal_parts) {
      if (begins_normal_part(last.value)) return end;
    } else if (printable_ascii(last.value) &&
               printable_ascii(static_cast<unsigned char>(text[end - 1]))) {
      return end;
    }
  }
  return 0;
}

void Normalizer::feed(std::string_view text, std::string& out) {
  held_ += text;
  const std::size_t cut = certain(held_);
  if (cut == 0) return;
  run(std::string_view(held_).substr(0, cut), out);
  held_.erase(0, cut);
}

void Normalizer::finish(std::string& out) {
  if (!held_.empty()) run(held_, out);
  held_.clear();
}

void Normalizer::run(std::string_view text, std::string& out) {
  most_ = GrownText::most_of(text.size());
  if (steps_.size() == 1) return apply(0, text, out);
  std::string from(text), to;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    to.clear();
    apply(i, from, to);
    std::swap(from, to);
  }
  out += from;
}

void Normalizer::apply(std::size_t index, std::string_view text, std::string& out) {
  if (text.empty()) return;
  const NormalizeStep& step = steps_[index];
  const bool begins = !begun_[index];
  begun_[index] = true;
  front_is_gone_ = front_is_gone_ || (begins && drops_front(step, text));
  GrownText grown(out, most_);
  if (const auto* form = std::get_if<NormalForm>(&step)) {
    append_normal_form(text, *form, out);
  } else if (std::holds_alternative<NmtStep>(step)) {
    each_character(text, [&](std::uint32_t c, std::string_view character) {
      if (nmt_blanks(c)) {
        out += ' ';
      } else if (!nmt_drops(c)) {
        out += character;
      }
    });
  } else if (std::holds_alternative<LowercaseStep>(step)) {
    append_lower(text, out);
  } else if (std::holds_alternative<StripAccentsStep>(step)) {
    each_character(text, [&](std::uint32_t c, std::string_view character) {
      if (!is_mark(c)) out += character;
    });
  } else if (const auto* strip = std::get_if<StripStep>(&step)) {
    out += stripped(text, *strip);
  } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
    if (begins) grown += prepend->text;
    grown += text;
  } else if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
    append_replaced(text, *replace, grown);
  } else {
    std::get<CharMapStep>(step).map->append_replaced(text, grown);
  }
}

std::string normalized(const NormalizerSteps& steps, std::string_view valid) {
  if (steps.empty()) return std::string(valid);
  Normalizer normalizer(steps);
  std::string out;
  normalizer.feed(valid, out);
  normalizer.finish(out);
  return out;
}

}  // namespace dew
