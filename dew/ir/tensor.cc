#include "dew/ir/tensor.h"

#include <cstring>

namespace dew {
namespace {

// Calls f with a value of the C++ type of `dtype`.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f64:
      return f(double{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::u32:
      return f(std::uint32_t{});
    case DType::pred:
      return f(bool{});
  }
}

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, bool>) {
    return x != 0;
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

}  // namespace

void store(const Array& array, DType dtype, std::byte* out) {
  with_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < array.data.size(); ++i) {
      const T x = from_double<T>(array.data[i]);
      std::memcpy(out + i * sizeof(T), &x, sizeof(T));
    }
  });
}

Array load(const Type& type, const std::byte* bytes) {
  Array out(type.shape);
  with_type(type.dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      T x;
      std::memcpy(&x, bytes + i * sizeof(T), sizeof(T));
      out.data[i] = to_double(x);
    }
  });
  return out;
}

}  // namespace dew
