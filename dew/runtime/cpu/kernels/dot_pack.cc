#include "dew/runtime/cpu/kernels/dot_pack.h"

#include <cstring>
#include <type_traits>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/dot_pack.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

#ifndef DEW_DOT_PACK_COPIED_ROWS_
#define DEW_DOT_PACK_COPIED_ROWS_
namespace dew::cpu {

// Whole rows at a time: most are short, so that a call for each would take longer than the copy.
struct CopiedRows {
  const void* from;
  void* to;
  std::int64_t from_row, to_row;  // elements
  std::size_t rows, columns;
};

}  // namespace dew::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

template <class From, class To, class Visit>
HWY_INLINE void EachRow(const CopiedRows& rows, Visit visit) {
  for (std::size_t r = 0; r < rows.rows; ++r) {
    visit(static_cast<const From*>(rows.from) + static_cast<std::int64_t>(r) * rows.from_row,
          static_cast<To*>(rows.to) + static_cast<std::int64_t>(r) * rows.to_row);
  }
}

void Widen(const CopiedRows& rows) {
  EachRow<std::uint16_t, float>(rows, [&](const std::uint16_t* from, float* to) HWY_ATTR {
    std::size_t i = 0;
    for (; i + kLanes <= rows.columns; i += kLanes)
      hn::StoreU(LoadBf16(DF(), from + i), DF(), to + i);
    for (; i < rows.columns; ++i) {
      const std::uint32_t bits = std::uint32_t{from[i]} << 16;
      std::memcpy(to + i, &bits, sizeof bits);
    }
  });
}

void Narrow(const CopiedRows& rows) {
  EachRow<float, std::uint16_t>(rows, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    std::size_t i = 0;
    for (; i + kLanes <= rows.columns; i += kLanes)
      StoreBf16(hn::LoadU(DF(), from + i), DF(), to + i);
    if (i == rows.columns) return;
    HWY_ALIGN std::uint16_t rest[kLanes];
    StoreBf16(LoadPart(from + i, rows.columns - i), DF(), rest);
    std::memcpy(to + i, rest, (rows.columns - i) * sizeof *rest);
  });
}

template <class T>
void Move(const CopiedRows& rows) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  EachRow<T, T>(rows, [&](const T* from, T* to) HWY_ATTR {
    std::size_t i = 0;
    for (; i + lanes <= rows.columns; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    for (; i < rows.columns; ++i) to[i] = from[i];
  });
}

void Copy(const CopiedRows& rows, DType from, DType to) {
  if (from == to) return from == DType::f32 ? Move<float>(rows) : Move<std::uint16_t>(rows);
  return from == DType::bf16 ? Widen(rows) : Narrow(rows);
}

void AddRow(float* to, const float* from, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(DF(), to + i), hn::LoadU(DF(), from + i)), DF(), to + i);
  }
  for (; i < n; ++i) to[i] += from[i];
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {
namespace {

HWY_EXPORT(Copy);
HWY_EXPORT(AddRow);

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

}  // namespace

void copy_matrix(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols) {
  if (from.col != 1 || to.col != 1) return copy_elements(from, to, rows, cols);
  const bool one_run = from.row == cols && to.row == cols;
  const auto n = static_cast<std::size_t>(cols), m = static_cast<std::size_t>(rows);
  HWY_DYNAMIC_DISPATCH(Copy)
  ({from.data, to.data, from.row, to.row, one_run ? 1 : m, one_run ? m * n : n}, from.dtype,
   to.dtype);
}

void add_row(float* to, const float* from, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddRow)(to, from, static_cast<std::size_t>(n));
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
