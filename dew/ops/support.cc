#include "dew/ops/support.h"

#include <numeric>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) result.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace

Checks::Checks(const char* op, std::string_view names, Types operands)
    : op_(op), names_(words(names)), operands_(operands) {
  const bool open = names.ends_with("...");
  const std::size_t least = open ? names_.size() - 1 : names_.size();
  if (operands.size() < least || (!open && operands.size() > least)) {
    refuse("OP-1",
           format("takes {}{} operands, got {}", open ? "at least " : "", least, operands.size()));
  }
}

std::string Checks::name_of(std::size_t i) const {
  if (i < names_.size() && !names_[i].ends_with("...")) return names_[i];
  return format("operand {}", i);
}

void Checks::refuse(std::string_view constraint, const std::string& detail) const {
  std::string types;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    types += format("{}{} {}", i == 0 ? "" : ", ", name_of(i), to_string(operands_[i]));
  }
  fail(ErrorCode::usage,
       format("{}: {} {}{}", op_, constraint, detail, types.empty() ? "" : " (" + types + ")"));
}

void Checks::is(std::string_view constraint, std::size_t i, const Type& type) const {
  if (operands_[i] == type) return;
  refuse(constraint, format("{} must be {}", name_of(i), to_string(type)));
}

void Checks::are_dims(std::string_view constraint, const Dims& dims, std::size_t i) const {
  std::vector<bool> seen(operands_[i].shape.size(), false);
  for (std::int64_t d : dims) {
    const bool exists = d >= 0 && d < operands_[i].rank();
    if (!exists || seen[slot(d)]) {
      refuse(constraint, format("[{}] are not distinct dimensions of {}", join(dims), name_of(i)));
    }
    seen[slot(d)] = true;
  }
}

std::string letters(std::int64_t count) {
  constexpr std::string_view kLetters = "abcfghijklmopqrstuwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  DEW_CHECK(count <= static_cast<std::int64_t>(kLetters.size()), "too many dimensions");
  std::string text;
  for (char c : kLetters.substr(0, slot(count))) {
    if (!text.empty()) text += ' ';
    text += c;
  }
  return text;
}

namespace {

std::size_t place(const Array& array, const Dims& index) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < array.shape.size(); ++d) offset = offset * array.shape[d] + index[d];
  return static_cast<std::size_t>(offset);
}

}  // namespace

double& at(Array& array, const Dims& index) { return array.data[place(array, index)]; }
double at(const Array& array, const Dims& index) { return array.data[place(array, index)]; }

DType cotangent_dtype(Value operand) {
  return operand.program->info(operand).weight ? DType::f32 : operand.dtype();
}

Value fit(Value operand, Value cotangent) {
  const DType wanted = cotangent_dtype(operand);
  return cotangent.dtype() == wanted ? cotangent : convert(cotangent, wanted);
}

Value plain_cotangent(const VjpArgs& args, std::size_t i) {
  const Value g = args.cotangents[i];
  return g.dtype() == args.results[i].dtype() ? g : convert(g, args.results[i].dtype());
}

Value scalar(Program& program, DType dtype, double value) {
  return constant(program, {dtype, {}}, value);
}

Dims counting(std::int64_t count) {
  Dims dims(slot(count));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::size_t slot(std::int64_t i) {
  DEW_CHECK(i >= 0, "negative subscript");
  return static_cast<std::size_t>(i);
}

}  // namespace dew
