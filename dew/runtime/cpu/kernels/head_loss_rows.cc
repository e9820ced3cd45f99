#include "dew/runtime/cpu/kernels/head_loss_rows.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "dew/base/dtype.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/head_loss_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

constexpr float kLog2OfE = 1.44269504f;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Calls visit(i, n) for vectors of n lanes that cover [0, columns); n < kLanes only for the last.
template <class Visit>
HWY_INLINE void ForVectors(std::size_t columns, Visit visit) {
  std::size_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) visit(i, kLanes);
  if (i < columns) visit(i, columns - i);
}

HWY_INLINE VF LoadSome(const float* p, std::size_t n) {
  return n == kLanes ? hn::LoadU(DF(), p) : LoadPart(p, n);
}
HWY_INLINE void StoreSome(VF v, float* p, std::size_t n) {
  n == kLanes ? hn::StoreU(v, DF(), p) : StorePart(v, p, n);
}

void CapRow(float* z, std::size_t columns, float cap) {
  const VF inverse = Const(1.0f / cap), factor = Const(cap);
  ForVectors(columns, [&](std::size_t i, std::size_t n) HWY_ATTR {
    StoreSome(hn::Mul(factor, Tanh(hn::Mul(LoadSome(z + i, n), inverse))), z + i, n);
  });
}

HWY_INLINE float GreatestLogit(const float* z, std::size_t columns) {
  VF a = Const(kMinusInf), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    a = hn::Max(a, hn::LoadU(DF(), z + i));
    b = hn::Max(b, hn::LoadU(DF(), z + i + kLanes));
    c = hn::Max(c, hn::LoadU(DF(), z + i + 2 * kLanes));
    d = hn::Max(d, hn::LoadU(DF(), z + i + 3 * kLanes));
  }
  for (; i + kLanes <= columns; i += kLanes) a = hn::Max(a, hn::LoadU(DF(), z + i));
  float most = hn::GetLane(hn::MaxOfLanes(DF(), hn::Max(hn::Max(a, b), hn::Max(c, d))));
  for (; i < columns; ++i) most = z[i] > most ? z[i] : most;
  return most;
}

HWY_INLINE std::int32_t FirstEqual(const float* z, std::size_t columns, float value) {
  std::size_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const auto lane = hn::FindFirstTrue(DF(), hn::Eq(hn::LoadU(DF(), z + i), Const(value)));
    if (lane >= 0) return static_cast<std::int32_t>(i) + static_cast<std::int32_t>(lane);
  }
  for (; i < columns; ++i) {
    if (z[i] == value) return static_cast<std::int32_t>(i);
  }
  return -1;
}

HWY_INLINE float SumOfExp(const float* z, std::size_t columns, float most) {
  const VF log2e = Const(kLog2OfE), shift = Const(most * kLog2OfE);
  const auto exp = [&](VF x) HWY_ATTR { return Exp2<true, false>(hn::MulSub(x, log2e, shift)); };
  VF a = hn::Zero(DF()), b = a;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    a = hn::Add(a, exp(hn::LoadU(DF(), z + i)));
    b = hn::Add(b, exp(hn::LoadU(DF(), z + i + kLanes)));
  }
  for (; i < columns; i += kLanes) {
    const std::size_t n = SmallerOf(columns - i, kLanes);
    const auto real = hn::FirstN(DF(), n);
    a = hn::Add(a, hn::IfThenElseZero(real, exp(LoadSome(z + i, n))));
  }
  return SumLanes(hn::Add(a, b));
}

void MeasureLogits(const LogitBlock& block, const LogitStats& stats) {
  const auto columns = static_cast<std::size_t>(block.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(block.rows); ++r) {
    float* z = block.z + r * columns;
    if (block.cap > 0) CapRow(z, columns, block.cap);
    const float most = GreatestLogit(z, columns);
    const std::int32_t winner = FirstEqual(z, columns, most);
    stats.most[r] = most;
    stats.winner[r] = winner < 0 ? -1 : static_cast<std::int32_t>(block.first) + winner;
    stats.sum[r] = SumOfExp(z, columns, most);
  }
}

void MergeStats(const LogitStats& stats, std::size_t ranges, std::size_t stride, std::size_t rows,
                float* lse, std::int32_t* winner) {
  ForVectors(rows, [&](std::size_t r, std::size_t n) HWY_ATTR {
    VF most = Const(kMinusInf);
    for (std::size_t j = 0; j < ranges; ++j)
      most = hn::Max(most, LoadSome(stats.most + j * stride + r, n));
    VF sum = hn::Zero(DF());
    for (std::size_t j = 0; j < ranges; ++j) {
      const VF below =
          hn::Mul(hn::Sub(LoadSome(stats.most + j * stride + r, n), most), Const(kLog2OfE));
      sum = hn::MulAdd(LoadSome(stats.sum + j * stride + r, n), Exp2<true, true>(below), sum);
    }
    StoreSome(hn::Add(most, Log(sum)), lse + r, n);
    HWY_ALIGN float greatest[kLanes];
    hn::Store(most, DF(), greatest);
    for (std::size_t lane = 0; lane < n; ++lane) {
      std::size_t j = 0;
      while (j < ranges && stats.most[j * stride + r + lane] != greatest[lane]) ++j;
      winner[r + lane] = j < ranges ? stats.winner[j * stride + r + lane] : -1;
    }
  });
}

HWY_INLINE void StoreGradient(VF v, float* in_place, std::uint16_t* rounded, std::size_t i,
                              std::size_t n) {
  if (rounded == nullptr) return StoreSome(v, in_place + i, n);
  if (n == kLanes) return StoreNear(v, rounded + i);
  HWY_ALIGN std::uint16_t lanes[kLanes];
  StoreNear(v, lanes);
  std::memcpy(rounded + i, lanes, n * sizeof *lanes);
}

// dz of one row, but for what the label adds.
template <bool kCapped>
struct GradientOfLogits {
  VF log2e, shift, factor, inverse;

  GradientOfLogits(const LogitBlock& b, const RowGradient& g, std::size_t r)
      : log2e(Const(kLog2OfE)),
        shift(Const(g.lse[r] * kLog2OfE)),
        factor(Const(g.factor[r])),
        inverse(Const(kCapped ? 1.0f / b.cap : 0.0f)) {}

  HWY_INLINE VF Slope(VF z) const {
    const VF part = hn::Mul(z, inverse);
    return hn::NegMulAdd(part, part, Const(1.0f));
  }
  HWY_INLINE VF At(VF z) const {
    const VF dz = hn::Mul(factor, Exp2<true, false>(hn::MulSub(z, log2e, shift)));
    return kCapped ? hn::Mul(dz, Slope(z)) : dz;
  }
};

template <bool kCapped>
void GradientRow(const LogitBlock& b, const RowGradient& g, std::size_t r, std::uint16_t* rounded) {
  const auto columns = static_cast<std::size_t>(b.columns);
  float* z = b.z + r * columns;
  const std::int64_t label = g.label[r] - b.first;
  const bool has_label = label >= 0 && label < b.columns;
  const VF labels_z = Const(has_label ? z[label] : 0.0f);
  const GradientOfLogits<kCapped> gradient(b, g, r);
  std::size_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    const VF x = gradient.At(hn::LoadU(DF(), z + i));
    const VF y = gradient.At(hn::LoadU(DF(), z + i + kLanes));
    if (rounded != nullptr) {
      StoreNear2(x, y, rounded + i);
    } else {
      hn::StoreU(x, DF(), z + i);
      hn::StoreU(y, DF(), z + i + kLanes);
    }
  }
  for (; i < columns; i += kLanes) {
    const std::size_t n = SmallerOf(columns - i, kLanes);
    StoreGradient(gradient.At(LoadSome(z + i, n)), z, rounded, i, n);
  }
  if (!has_label) return;
  VF target = Const(g.weight[r]);
  if (kCapped) target = hn::Mul(target, gradient.Slope(labels_z));
  StoreGradient(hn::Sub(gradient.At(labels_z), target), z, rounded, static_cast<std::size_t>(label),
                1);
}

void LogitGradients(const LogitBlock& b, const RowGradient& g, std::size_t real, void* to_bf16) {
  const auto columns = static_cast<std::size_t>(b.columns);
  auto* rounded = static_cast<std::uint16_t*>(to_bf16);
  for (std::size_t r = 0; r < static_cast<std::size_t>(b.rows); ++r) {
    std::uint16_t* to = rounded == nullptr ? nullptr : rounded + r * columns;
    if (r < real) {
      b.cap > 0 ? GradientRow<true>(b, g, r, to) : GradientRow<false>(b, g, r, to);
    } else if (to != nullptr) {
      std::memset(to, 0, columns * sizeof *to);
    } else {
      std::memset(b.z + r * columns, 0, columns * sizeof *b.z);
    }
  }
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(MeasureLogits);
HWY_EXPORT(MergeStats);
HWY_EXPORT(LogitGradients);

void measure_logits(const LogitBlock& block, const LogitStats& stats) {
  HWY_DYNAMIC_DISPATCH(MeasureLogits)(block, stats);
}

void merge_stats(const LogitStats& stats, std::int64_t ranges, std::int64_t stride,
                 std::int64_t rows, float* lse, std::int32_t* winner) {
  HWY_DYNAMIC_DISPATCH(MergeStats)
  (stats, static_cast<std::size_t>(ranges), static_cast<std::size_t>(stride),
   static_cast<std::size_t>(rows), lse, winner);
}

void logit_gradients(const LogitBlock& block, const RowGradient& row, std::int64_t real,
                     void* to_bf16) {
  HWY_DYNAMIC_DISPATCH(LogitGradients)(block, row, static_cast<std::size_t>(real), to_bf16);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
