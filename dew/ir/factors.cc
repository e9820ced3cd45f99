#include "dew/ir/factors.h"

#include <algorithm>
#include <cctype>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::int64_t kUnknown = -1;

// Reads one rule. Grammar: lists "->" lists { "|" section }; lists are separated by ',' or ';'; a
// dimension is a letter or letters in parentheses; sections are "norep f..", "inner f:result..",
// "index f:operand..", "linear each|all operand..", "once operand..".
class RuleReader {
 public:
  RuleReader(std::string_view text, std::span<const Type> operands, std::span<const Type> results)
      : text_(text) {
    read_lists(operands, rule_.operands);
    expect('-');
    expect('>');
    read_lists(results, rule_.results);
    while (peek() == '|') read_section();
    if (peek() != '\0') bug("unexpected character");
    measure(operands, rule_.operands, false);
    measure(results, rule_.results, false);
    measure(operands, rule_.operands, true);
    measure(results, rule_.results, true);
  }

  FactorRule take() { return std::move(rule_); }

 private:
  [[noreturn]] void bug(const std::string& what) const {
    check_failed(__FILE__, __LINE__, "factor rule", format("{} at {} in \"{}\"", what, at_, text_));
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void expect(char c) {
    if (peek() != c) bug(format("'{}' expected", c));
    ++at_;
  }

  bool at_letter() { return std::isalpha(static_cast<unsigned char>(peek())) != 0; }

  int letter() {
    if (!at_letter()) bug("a letter expected");
    const char c = text_[at_++];
    const auto found = std::ranges::find(rule_.names, c);
    const auto factor = static_cast<int>(found - rule_.names.begin());
    if (found == rule_.names.end()) {
      rule_.names.push_back(c);
      rule_.sizes.push_back(kUnknown);
    }
    return factor;
  }

  int number() {
    if (std::isdigit(static_cast<unsigned char>(peek())) == 0) bug("a number expected");
    int value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }

  std::string_view word() {
    peek();
    const std::size_t first = at_;
    while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return text_.substr(first, at_ - first);
  }

  void read_lists(std::span<const Type> types, std::vector<FactorRule::DimFactors>& lists) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (i > 0) {
        if (peek() != ',' && peek() != ';') bug("more operands or results than lists");
        ++at_;
      }
      lists.push_back(read_dims());
      if (lists.back().size() != types[i].shape.size())
        bug(format("dimensions of {} expected", to_string(types[i])));
    }
  }

  FactorRule::DimFactors read_dims() {
    FactorRule::DimFactors dims;
    while (peek() == '(' || at_letter()) {
      if (at_letter()) {
        dims.push_back({letter()});
        continue;
      }
      expect('(');
      dims.emplace_back();
      while (peek() != ')') dims.back().push_back(letter());
      expect(')');
    }
    return dims;
  }

  void read_section() {
    expect('|');
    const std::string_view section = word();
    if (section == "norep") {
      while (at_letter()) rule_.norep.push_back(letter());
    } else if (section == "inner" || section == "index") {
      read_pairs(section == "inner" ? rule_.inner : rule_.index);
    } else if (section == "linear") {
      rule_.mode = word() == "all" ? FactorRule::LinearMode::all : FactorRule::LinearMode::each;
      read_numbers(rule_.linear);
    } else if (section == "once") {
      read_numbers(rule_.once);
    } else {
      bug("unknown section");
    }
  }

  void read_pairs(std::vector<std::pair<int, int>>& pairs) {
    while (at_letter()) {
      const int factor = letter();
      expect(':');
      pairs.emplace_back(factor, number());
    }
  }

  void read_numbers(std::vector<int>& numbers) {
    while (peek() != '\0' && peek() != '|') numbers.push_back(number());
  }

  // Sizes from dimensions of one factor first (`compound` false); then a dimension of several may
  // have one unknown.
  void measure(std::span<const Type> types, const std::vector<FactorRule::DimFactors>& lists,
               bool compound) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (std::size_t d = 0; d < lists[i].size(); ++d) {
        if ((lists[i][d].size() != 1) == compound) measure_dim(lists[i][d], types[i].shape[d]);
      }
    }
  }

  void measure_dim(const std::vector<int>& factors, std::int64_t size) {
    std::int64_t known = 1;
    std::int64_t* unknown = nullptr;
    for (int f : factors) {
      std::int64_t& factor = rule_.sizes[static_cast<std::size_t>(f)];
      if (factor == kUnknown && unknown != nullptr)
        bug("two factors of one dimension without a size");
      if (factor == kUnknown) {
        unknown = &factor;
      } else {
        known *= factor;
      }
    }
    if (unknown != nullptr) {
      *unknown = known == 0 ? 1 : size / known;  // of an empty dimension any size will do
      known *= *unknown;
    }
    if (known != size) bug(format("a dimension of size {} has factors of product {}", size, known));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  FactorRule rule_;
};

}  // namespace

bool FactorRule::result_has(int result, int factor) const {
  return std::ranges::any_of(results[static_cast<std::size_t>(result)],
                             [factor](const std::vector<int>& dim) {
                               return std::ranges::find(dim, factor) != dim.end();
                             });
}

bool FactorRule::is_inner(int factor, int result) const {
  return std::ranges::find(inner, std::pair(factor, result)) != inner.end();
}

FactorRule factor_rule(std::string_view text, std::span<const Type> operands,
                       std::span<const Type> results) {
  return RuleReader(text, operands, results).take();
}

FactorRule pointwise_rule(std::span<const Type> operands, std::span<const Type> results) {
  FactorRule rule;
  rule.sizes = results[0].shape;
  FactorRule::DimFactors dims;
  for (std::size_t d = 0; d < rule.sizes.size(); ++d) {
    rule.names.push_back(static_cast<char>('a' + d % 26));
    dims.push_back({static_cast<int>(d)});
  }
  for (const Type& type : operands) {
    DEW_CHECK(type.rank() == 0 || type.shape == rule.sizes,
              "an operand of another shape in a pointwise rule");
    rule.operands.push_back(type.rank() == 0 ? FactorRule::DimFactors{} : dims);
  }
  for (const Type& type : results) {
    DEW_CHECK(type.shape == rule.sizes, "a result of another shape in a pointwise rule");
    rule.results.push_back(dims);
  }
  return rule;
}

}  // namespace dew
