// What the rows in this folder share: checks of infer, access to elements, and small pieces of
// gradients.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

// The checks of one call of infer. Every refusal cites a numbered constraint of docs/ops.md:
//   const Checks check("dot", "lhs rhs", operands);           // OP-1: as many operands as names
//   const auto& dims = check.attrs<DotDims>(attrs);           // OP-2
//   if (...) check.refuse("DOT-1", "dtypes differ");          // throws "dot: DOT-1 dtypes differ
//   (lhs f32[..], ..)"
class Checks {
 public:
  // `names`: of the operands, separated by spaces; one that ends in "..." stands for any number.
  Checks(const char* op, std::string_view names, Types operands);

  [[noreturn]] void refuse(std::string_view constraint, const std::string& detail) const;

  template <class T>
  const T& attrs(const Attrs& given) const {
    const T* wanted = std::get_if<T>(&given);
    if (wanted == nullptr) refuse("OP-2", "attributes of another kind of op");
    return *wanted;
  }

  // Operand i is exactly that type.
  void is(std::string_view constraint, std::size_t i, const Type& type) const;

  // `dims` are distinct dimensions of operand i.
  void are_dims(std::string_view constraint, const Dims& dims, std::size_t i) const;

  const Type& operator[](std::size_t i) const { return operands_[i]; }

 private:
  std::string name_of(std::size_t i) const;

  const char* op_;
  std::vector<std::string> names_;
  Types operands_;
};

// `count` letters with spaces between, for factor rules; 'd', 'e', 'n' and 'v' are left to be named
// by hand.
std::string letters(std::int64_t count);

// Row-major place of an index; `index` may have trailing dimensions more than the array, which are
// ignored.
double& at(Array& array, const Dims& index);
double at(const Array& array, const Dims& index);

// The cotangent in the dtype that `operand` must get: f32 for weights, its own dtype for all
// others.
Value fit(Value operand, Value cotangent);
DType cotangent_dtype(Value operand);

// Cotangent i in the dtype of the result: it is another one where the result is computed from
// weights alone.
Value plain_cotangent(const VjpArgs& args, std::size_t i);

// A rank-0 constant.
Value scalar(Program& program, DType dtype, double value);

// 0, 1, .. count-1.
Dims counting(std::int64_t count);

std::size_t slot(std::int64_t i);  // as a subscript; a negative one is a bug of ours

}  // namespace dew
