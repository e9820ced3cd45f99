#include "dew/base/dtype.h"

namespace dew {

std::string_view name(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::pred:
      return "pred";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::pred}) {
    if (name(t) == text) return t;
  }
  return std::nullopt;
}

}  // namespace dew
