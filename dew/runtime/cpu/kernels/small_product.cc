#include "dew/runtime/cpu/kernels/small_product.h"

#include <algorithm>

#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/small_product.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

// kRows rows of c, kVectors vectors of each. Sums stay in registers.
template <int kRows, int kVectors>
HWY_INLINE void Block(const ProductShape& s, const float* a, const float* b, float* c) {
  VF sums[kRows][kVectors];
  DEW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    DEW_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = s.accumulate ? hn::LoadU(DF(), c + r * s.c_row + v * std::int64_t{kLanes})
                                : hn::Zero(DF());
    }
  }
  for (std::int64_t k = 0; k < s.k; ++k, a += s.a_col, b += s.b_row) {
    VF row[kVectors];
    DEW_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(DF(), b + v * std::int64_t{kLanes});
    DEW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(DF(), a[r * s.a_row]);
      DEW_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, row[v], sums[r][v]);
    }
  }
  DEW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    DEW_UNROLL
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sums[r][v], DF(), c + r * s.c_row + v * std::int64_t{kLanes});
  }
}

// One row of c, its last columns.
HWY_INLINE void Rest(const ProductShape& s, const float* a, const float* b, float* c,
                     std::size_t n) {
  VF sum = s.accumulate ? LoadPart(c, n) : hn::Zero(DF());
  for (std::int64_t k = 0; k < s.k; ++k, a += s.a_col, b += s.b_row)
    sum = hn::MulAdd(hn::Set(DF(), *a), LoadPart(b, n), sum);
  StorePart(sum, c, n);
}

template <int kRows>
HWY_INLINE void Rows(const ProductShape& s, const float* a, const float* b, float* c) {
  constexpr std::int64_t kTwo = 2 * kLanes, kOne = kLanes;
  std::int64_t j = 0;
  for (; j + kTwo <= s.n; j += kTwo) Block<kRows, 2>(s, a, b + j, c + j);
  for (; j + kOne <= s.n; j += kOne) Block<kRows, 1>(s, a, b + j, c + j);
  if (j == s.n) return;
  for (int r = 0; r < kRows; ++r) {
    Rest(s, a + r * s.a_row, b + j, c + r * s.c_row + j, static_cast<std::size_t>(s.n - j));
  }
}

// REQUIRES: b_col is 1.
void Multiply(const ProductShape& s, const float* a, const float* b, float* c) {
  constexpr int kRows = 4;
  std::int64_t i = 0;
  for (; i + kRows <= s.m; i += kRows) Rows<kRows>(s, a + i * s.a_row, b, c + i * s.c_row);
  for (; i < s.m; ++i) Rows<1>(s, a + i * s.a_row, b, c + i * s.c_row);
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Multiply);

namespace {

// Measured with AVX2 against oneDNN's gemm: 32 x 32 x 16 takes 0.6 of its time, 64 x 128 x 32 1.1.
constexpr std::int64_t kMostTerms = 64 << 10;

// to[k, n] = from[n, k].
void transpose(const float* from, std::int64_t stride, float* to, std::int64_t k, std::int64_t n) {
  const RangeIo& io = range_io();
  for (std::int64_t i = 0; i < k; i += kTransposeSide) {
    for (std::int64_t j = 0; j < n; j += kTransposeSide) {
      io.transpose(sizeof(float), reinterpret_cast<const std::byte*>(from + j * stride + i), stride,
                   reinterpret_cast<std::byte*>(to + i * n + j), n, std::min(k - i, kTransposeSide),
                   std::min(n - j, kTransposeSide));
    }
  }
}

}  // namespace

bool is_small_product(const ProductShape& s) {
  return s.in == DType::f32 && s.out == DType::f32 && (s.b_col == 1 || s.b_row == 1) &&
         s.m * s.n * s.k <= kMostTerms;
}

std::size_t small_product_scratch(const ProductShape& s) {
  return s.b_col == 1 ? 0 : static_cast<std::size_t>(s.k * s.n) * sizeof(float);
}

void small_product(const ProductShape& s, const float* a, const float* b, float* c,
                   float* scratch) {
  ProductShape one = s;
  if (s.b_col != 1) {
    one.b_row = s.n;
    one.b_col = 1;
  }
  for (std::int64_t i = 0; i < s.batch; ++i, a += s.a_batch, b += s.b_batch, c += s.c_batch) {
    const bool by_rows = s.b_col == 1;
    if (!by_rows) transpose(b, s.b_col, scratch, s.k, s.n);
    HWY_DYNAMIC_DISPATCH(Multiply)(one, a, by_rows ? b : scratch, c);
  }
}

TileProduct::TileProduct(const ProductShape& shape) : shape_(shape), onednn_(Product(shape)) {
  const bool packs = onednn_->implementation().starts_with("gemm");
  if (packs && is_small_product(shape)) onednn_.reset();
}

void TileProduct::execute(const void* a, const void* b, void* c, void* scratch) const noexcept {
  if (onednn_) return onednn_->execute(a, b, c, scratch);
  small_product(shape_, static_cast<const float*>(a), static_cast<const float*>(b),
                static_cast<float*>(c), static_cast<float*>(scratch));
}

std::size_t TileProduct::scratch_bytes() const {
  return onednn_ ? onednn_->scratch_bytes() : small_product_scratch(shape_);
}

std::string TileProduct::implementation() const {
  return onednn_ ? "onednn " + onednn_->implementation() : "highway products";
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
