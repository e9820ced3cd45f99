// From the dialects of tokenizer files to PCRE2's. What both read in the same way is passed on;
// what PCRE2 would read in another way is spelled out, or refused by name.
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/pattern.h"

namespace dew {
namespace {

struct LongName {
  std::string_view name, short_name;
};

// General categories as the dialects name them in full, in lower case without separators.
constexpr auto kCategories = std::to_array<LongName>({{"letter", "L"},
                                                      {"casedletter", "L&"},
                                                      {"lc", "L&"},
                                                      {"uppercaseletter", "Lu"},
                                                      {"lowercaseletter", "Ll"},
                                                      {"titlecaseletter", "Lt"},
                                                      {"modifierletter", "Lm"},
                                                      {"otherletter", "Lo"},
                                                      {"mark", "M"},
                                                      {"combiningmark", "M"},
                                                      {"nonspacingmark", "Mn"},
                                                      {"spacingmark", "Mc"},
                                                      {"enclosingmark", "Me"},
                                                      {"number", "N"},
                                                      {"decimalnumber", "Nd"},
                                                      {"letternumber", "Nl"},
                                                      {"othernumber", "No"},
                                                      {"punctuation", "P"},
                                                      {"openpunctuation", "Ps"},
                                                      {"closepunctuation", "Pe"},
                                                      {"initialpunctuation", "Pi"},
                                                      {"finalpunctuation", "Pf"},
                                                      {"connectorpunctuation", "Pc"},
                                                      {"dashpunctuation", "Pd"},
                                                      {"otherpunctuation", "Po"},
                                                      {"symbol", "S"},
                                                      {"mathsymbol", "Sm"},
                                                      {"currencysymbol", "Sc"},
                                                      {"modifiersymbol", "Sk"},
                                                      {"othersymbol", "So"},
                                                      {"separator", "Z"},
                                                      {"spaceseparator", "Zs"},
                                                      {"lineseparator", "Zl"},
                                                      {"paragraphseparator", "Zp"},
                                                      {"other", "C"},
                                                      {"control", "Cc"},
                                                      {"format", "Cf"},
                                                      {"unassigned", "Cn"},
                                                      {"privateuse", "Co"}});

constexpr auto kShortCategories = std::to_array<std::string_view>(
    {"l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me", "n",  "nd",
     "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi", "pf", "po", "s",  "sm",
     "sc", "sk", "so", "z",  "zs", "zl", "zp", "c",  "cc", "cf", "cn", "co"});

// Properties with two values that PCRE2 knows under the same name.
constexpr auto kProperties = std::to_array<std::string_view>(
    {"alphabetic", "whitespace", "uppercase", "lowercase", "ideographic", "emoji",
     "emojipresentation", "emojimodifier", "extendedpictographic", "diacritic", "extender",
     "asciihexdigit", "hexdigit", "math", "dash", "quotationmark"});

// \w and \d in Unicode's meaning, as items of a class.
constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// By itself, outside of a class, Oniguruma's \w also means these six, by a table of its own.
constexpr std::string_view kMoreWords = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

class Speller {
 public:
  Speller(std::string_view pattern, PatternSyntax syntax, const std::string& where)
      : text_(pattern), syntax_(syntax), where_(where) {}

  std::string spell() {
    while (at_ < text_.size()) item();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct, std::string_view why) const {
    fail(ErrorCode::data, format("{}: the pattern {} has {} at byte {}: {}", where_,
                                 in_quotes(text_), in_quotes(construct), at_, why));
  }
  bool oniguruma() const { return syntax_ == PatternSyntax::oniguruma; }
  bool here(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  void take(std::size_t bytes) {
    out_ += text_.substr(at_, bytes);
    at_ += bytes;
  }
  void replace(std::size_t bytes, std::string_view by) {
    out_ += by;
    at_ += bytes;
  }

  void item() {
    const char c = text_[at_];
    if (multi_folds()) watch_folds(c);
    switch (c) {
      case '\\':
        return escape(false);
      case '[':
        return character_class();
      case '(':
        return group();
      case ')':
        if (!outer_.empty()) {
          caseless_ = outer_.back();
          outer_.pop_back();
        }
        return take(1);
      case '{':
        return repeat();
      default:
        return take(1);
    }
  }

  // Where case is ignored, Oniguruma also takes one character for several ("ss" for U+00DF, "fi"
  // for the ligature) and the other way round, which PCRE2 does not. Letters of ASCII that make no
  // such pair mean the same for both.
  bool multi_folds() const { return oniguruma() && caseless_; }
  void refuse_fold(std::size_t bytes) const {
    refuse(
        text_.substr(at_, bytes),
        "where case is ignored, only letters of ASCII are supported, without ff, fi, fl, ss, st");
  }
  void watch_folds(char c) {
    if (static_cast<unsigned char>(c) >= 0x80) refuse_fold(1);
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool pair = (folded_ == 's' && (lower == 's' || lower == 't')) ||
                      (folded_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'));
    if (pair || (c == '{' && (folded_ == 's' || folded_ == 'f'))) refuse_fold(1);
    // Groups and repeats stand between letters and separate them not for sure.
    if (std::string_view("()?:=!<>*+").find(c) == std::string_view::npos) folded_ = lower;
  }

  void group() {
    // At the very front both dialects mean the whole pattern.
    if (at_ == 0 && here("(?i)")) {
      caseless_ = true;
      return take(4);
    }
    outer_.push_back(caseless_);
    if (!here("(?")) return take(here("(*") ? refuse_verb() : 1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (here(known)) return take(known.size());
    }
    if (here("(?i:")) {
      caseless_ = true;
      return take(4);
    }
    refuse(text_.substr(at_, 4), "this kind of group is not supported");
  }
  std::size_t refuse_verb() const { refuse("(*", "it is no repeat of anything"); }

  // {n,m} with what may be behind it.
  void repeat() {
    std::size_t end = at_ + 1;
    const auto digits = [&] {
      const std::size_t begin = end;
      while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end]))) ++end;
      return text_.substr(begin, end - begin);
    };
    const std::string_view least = digits();
    const bool comma = end < text_.size() && text_[end] == ',';
    if (comma) ++end;
    const std::string_view most = comma ? digits() : least;
    if (end >= text_.size() || text_[end] != '}' || (least.empty() && most.empty())) {
      return replace(1, "\\{");  // the character
    }
    ++end;
    const char behind = end < text_.size() ? text_[end] : ' ';
    if (oniguruma() && (behind == '+' || (behind == '?' && !comma))) {
      refuse(text_.substr(at_, end + 1 - at_), "a repeat of a repeat is not supported");
    }
    replace(end - at_,
            format("{{{}{}{}}}", least.empty() ? "0" : least, comma ? "," : "", comma ? most : ""));
  }

  void character_class() {
    take(1);
    if (here("^") && multi_folds()) refuse_fold(1);
    if (here("^")) take(1);
    if (here("]")) replace(1, "\\]");
    while (at_ < text_.size() && text_[at_] != ']') {
      if (text_[at_] == '\\') {
        escape(true);
      } else if (text_[at_] == '[') {
        refuse(text_.substr(at_, 2), "classes inside of classes are not supported");
      } else if (here("&&") || here("--") || here("~~")) {
        refuse(text_.substr(at_, 2), "operations on classes are not supported");
      } else if (multi_folds() && static_cast<unsigned char>(text_[at_]) >= 0x80) {
        refuse_fold(1);
      } else {
        take(1);
      }
    }
    if (at_ == text_.size()) refuse("[", "the class has no end");
    take(1);
  }

  void escape(bool in_class) {
    if (at_ + 1 == text_.size()) refuse("\\", "nothing follows it");
    const char c = text_[at_ + 1];
    const bool wide_class = c == 'S' || c == 'D' || (c == 'w' && in_class);
    if (multi_folds() && (wide_class || c == 'u' || c == 'x')) refuse_fold(2);
    if (const auto wide = class_escape(c, in_class)) return replace(2, *wide);
    if (c == 'p' || c == 'P') return property(in_class);
    if (c == 'x') return hexadecimal();
    if (c == 'u' && oniguruma()) return four_digits();
    if (std::string_view("rntfea").find(c) != std::string_view::npos) return take(2);
    if (c == 'v') return replace(2, "\\x{b}");
    if (!in_class && (c == 'A' || c == 'z')) return take(2);
    if (!std::isalnum(static_cast<unsigned char>(c))) return punctuation();
    refuse(text_.substr(at_, 2), "this escape is not supported");
  }

  // As a class, or in one. Where a class says the characters of ASCII by themselves, PCRE2 finds
  // them in a table of bits instead of Unicode's.
  static std::string items(std::string_view inside, bool in_class) {
    return in_class ? std::string(inside) : format("[{}]", inside);
  }

  std::string_view more_words(bool in_class) const {
    if (oniguruma()) return in_class ? "" : kMoreWords;
    return R"(\p{Join_Control})";
  }

  // What stands for several characters.
  std::optional<std::string> class_escape(char c, bool in_class) const {
    const auto items = [&](std::string_view inside) { return Speller::items(inside, in_class); };
    switch (c) {
      case 's':
        return items(R"(\x{9}-\x{d}\x{20}\p{White_Space})");
      case 'S':
        return R"(\P{White_Space})";
      case 'd':
        return R"(\p{Nd})";
      case 'D':
        return R"(\P{Nd})";
      case 'w':
        return items(format("{}{}", kWordItems, more_words(in_class)));
      case 'W':
        if (in_class) return std::nullopt;
        return format("[^{}{}]", kWordItems, more_words(false));
      case 'h':
        if (!oniguruma()) return std::nullopt;
        return items("0-9a-fA-F");
      default:
        return std::nullopt;
    }
  }

  void property(bool in_class) {
    const bool positive = text_[at_ + 1] == 'p';
    const std::size_t begin = at_ + 3;
    if (begin > text_.size() || text_[at_ + 2] != '{') {
      if (oniguruma() || begin > text_.size())
        refuse(text_.substr(at_, 3), "a property is written \\p{...}");
      return replace(3, spelled_property(text_.substr(at_ + 2, 1), positive, in_class));
    }
    const std::size_t end = text_.find('}', begin);
    if (end == std::string_view::npos) refuse(text_.substr(at_, 3), "the name has no end");
    std::string_view name = text_.substr(begin, end - begin);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    replace(end + 1 - at_, spelled_property(name, positive != negated, in_class));
  }

  std::string spelled_property(std::string_view name, bool positive, bool in_class) const {
    const char letter = positive ? 'p' : 'P';
    const std::string plain = plain_name(name);
    const bool folds = plain.empty() || plain.size() > 2 ||
                       std::string_view("nzps").find(plain[0]) == std::string_view::npos;
    if (multi_folds() && (folds || !positive)) refuse_fold(2);
    if (positive && (plain == "l" || plain == "n"))
      return items(plain == "l" ? R"(A-Za-z\p{L})" : R"(0-9\p{N})", in_class);
    if (const auto found = std::ranges::find(kShortCategories, plain);
        found != kShortCategories.end()) {
      std::string category = plain;
      category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
      return format("\\{}{{{}}}", letter, category);
    }
    if (const auto found = std::ranges::find(kCategories, plain, &LongName::name);
        found != kCategories.end()) {
      return format("\\{}{{{}}}", letter, found->short_name);
    }
    if (plain == "any" && positive) return items("\\x{0}-\\x{10ffff}", in_class);
    if (std::ranges::find(kProperties, plain) != kProperties.end())
      return format("\\{}{{{}}}", letter, plain);
    // A script by its own characters, not those that it shares. PCRE2 knows them all.
    if (plain.empty() || !std::ranges::all_of(plain, is_letter))
      refuse(name, "there is no such property");
    return format("\\{}{{sc:{}}}", letter, plain);
  }

  std::string_view hex_digits(std::size_t begin, std::size_t most) const {
    std::size_t end = begin;
    while (end < text_.size() && end < begin + most &&
           std::isxdigit(static_cast<unsigned char>(text_[end])))
      ++end;
    return text_.substr(begin, end - begin);
  }

  void hexadecimal() {
    const bool braces = at_ + 2 < text_.size() && text_[at_ + 2] == '{';
    const std::string_view digits = hex_digits(at_ + (braces ? 3 : 2), braces ? 8 : 2);
    const std::size_t end = at_ + (braces ? 3 : 2) + digits.size();
    if (digits.empty() || (braces && (end >= text_.size() || text_[end] != '}')))
      refuse(text_.substr(at_, 2), "hexadecimal digits must follow");
    // Two digits are a byte in one dialect and a character in the other, the same up to 7f.
    if (!braces && digits[0] > '7')
      refuse(text_.substr(at_, 4), "bytes beyond ASCII are not supported");
    replace(end + (braces ? 1 : 0) - at_, format("\\x{{{}}}", digits));
  }

  void four_digits() {
    const std::string_view digits = hex_digits(at_ + 2, 4);
    if (digits.size() != 4) refuse(text_.substr(at_, 2), "four hexadecimal digits must follow");
    replace(6, format("\\x{{{}}}", digits));
  }

  // A character that stands for itself: all of it, where it has several bytes.
  void punctuation() {
    std::size_t bytes = 2;
    while (at_ + bytes < text_.size() &&
           (static_cast<unsigned char>(text_[at_ + bytes]) & 0xc0) == 0x80)
      ++bytes;
    if (bytes == 2) return take(2);
    replace(bytes, text_.substr(at_ + 1, bytes - 1));
  }

  std::string_view text_;
  PatternSyntax syntax_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  bool caseless_ = false;
  std::vector<bool> outer_;  // caseless_ outside of each group
  char folded_ = ' ';        // the last character where case is ignored, in lower case
};

}  // namespace

std::string pcre2_spelling(std::string_view pattern, PatternSyntax syntax,
                           const std::string& where) {
  return Speller(pattern, syntax, where).spell();
}

}  // namespace dew
