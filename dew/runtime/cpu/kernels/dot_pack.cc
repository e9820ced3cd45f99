#include "dew/runtime/cpu/kernels/dot_pack.h"

#include <cstring>
#include <type_traits>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/dot_pack.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

void WidenRow(const std::uint16_t* from, float* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(LoadBf16(DF(), from + i), DF(), to + i);
  for (; i < n; ++i) {
    const std::uint32_t bits = std::uint32_t{from[i]} << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void NarrowRow(const float* from, std::uint16_t* to, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreBf16(hn::LoadU(DF(), from + i), DF(), to + i);
  if (i == n) return;
  HWY_ALIGN std::uint16_t rest[kLanes];
  StoreBf16(LoadPart(from + i, n - i), DF(), rest);
  std::memcpy(to + i, rest, (n - i) * sizeof *rest);
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {
namespace {

HWY_EXPORT(WidenRow);
HWY_EXPORT(NarrowRow);

using CopyRow = void (*)(const void* from, void* to, std::int64_t n);

void widen(const void* from, void* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenRow)
  (static_cast<const std::uint16_t*>(from), static_cast<float*>(to), static_cast<std::size_t>(n));
}

void narrow(const void* from, void* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowRow)
  (static_cast<const float*>(from), static_cast<std::uint16_t*>(to), static_cast<std::size_t>(n));
}

void copy32(const void* from, void* to, std::int64_t n) { std::memcpy(to, from, static_cast<std::size_t>(n) * 4); }
void copy16(const void* from, void* to, std::int64_t n) { std::memcpy(to, from, static_cast<std::size_t>(n) * 2); }

template <class From, class To>
void copy_strided(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const From value = *static_cast<const From*>(from.at(r, c));
      if constexpr (std::is_same_v<From, To>) {
        *static_cast<To*>(to.at(r, c)) = value;
      } else {
        *static_cast<To*>(to.at(r, c)) = static_cast<To>(value);
      }
    }
  }
}

void copy_elements(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols) {
  if (from.dtype == DType::f32) {
    return to.dtype == DType::f32 ? copy_strided<float, float>(from, to, rows, cols)
                                  : copy_strided<float, bf16>(from, to, rows, cols);
  }
  return to.dtype == DType::f32 ? copy_strided<bf16, float>(from, to, rows, cols)
                                : copy_strided<bf16, bf16>(from, to, rows, cols);
}

CopyRow row_copier(DType from, DType to) {
  if (from == to) return from == DType::f32 ? copy32 : copy16;
  return from == DType::bf16 ? widen : narrow;
}

}  // namespace

void copy_matrix(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols) {
  if (from.col != 1 || to.col != 1) return copy_elements(from, to, rows, cols);
  const CopyRow copy = row_copier(from.dtype, to.dtype);
  if (from.row == cols && to.row == cols) return copy(from.data, to.data, rows * cols);
  for (std::int64_t r = 0; r < rows; ++r) copy(from.at(r, 0), to.at(r, 0), cols);
}

void fill_zero(const Matrix& to, std::int64_t rows, std::int64_t cols) {
  const auto bytes = static_cast<std::size_t>(byte_size(to.dtype));
  for (std::int64_t r = 0; r < rows; ++r) {
    if (to.col == 1) {
      std::memset(to.at(r, 0), 0, static_cast<std::size_t>(cols) * bytes);
    } else {
      for (std::int64_t c = 0; c < cols; ++c) std::memset(to.at(r, c), 0, bytes);
    }
  }
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
