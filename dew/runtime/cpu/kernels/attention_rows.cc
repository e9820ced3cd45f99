#include "dew/runtime/cpu/kernels/attention_rows.h"

#include <cmath>
#include <limits>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/attention_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kHidden = -std::numeric_limits<float>::infinity();  // score of a key that is not seen

// Address of element i of probabilities, or of gradients.
template <Probability kKind>
HWY_INLINE void* PlaceOf(void* base, std::size_t i) {
  return static_cast<char*>(base) + i * (kKind == Probability::bf16 ? 2 : 4);
}

// Stores a vector of probabilities, or of gradients, at element i.
template <Probability kKind>
HWY_INLINE void StoreAs(VF v, void* base, std::size_t i) {
  if constexpr (kKind == Probability::bf16) {
    StoreNear(v, static_cast<std::uint16_t*>(base) + i);
  } else {
    hn::StoreU(kKind == Probability::rounded ? RoundNear(v) : v, DF(), static_cast<float*>(base) + i);
  }
}

// Row r's part of a mask.
struct RowSight {
  VI low, high, segment;
  const std::int32_t *position, *k_segment;
  std::size_t keys;

  RowSight(const ScoreBlock& b, std::size_t r)
      : low(hn::Set(DI(), b.mask->low[r])),
        high(hn::Set(DI(), b.mask->high[r])),
        segment(hn::Set(DI(), b.mask->q_segment[r])),
        position(b.mask->position),
        k_segment(b.mask->k_segment),
        keys(static_cast<std::size_t>(b.keys)) {}

  HWY_INLINE auto Sees(std::size_t i) const {
    const DI d;
    const VI p = hn::LoadU(d, position + i);
    const auto outside = hn::Or(hn::Gt(low, p), hn::Gt(p, high));
    const auto same = hn::Eq(hn::LoadU(d, k_segment + i), segment);
    const auto real = hn::FirstN(d, i < keys ? keys - i : 0);
    return hn::RebindMask(DF(), hn::And(hn::AndNot(outside, same), real));
  }
};

// Makes scores of a row, in powers of two, where that is more than a factor: masked, capped, or of negative scale.
// Returns their maximum.
template <bool kMasked, bool kCapped>
HWY_INLINE VF ScoreRow(const ScoreBlock& b, std::size_t r, float* s) {
  const VF factor = Const(kCapped ? b.scale.scale / b.scale.cap : b.scale.scale * kLog2E);
  const VF cap = Const(b.scale.cap * kLog2E), hidden = Const(kHidden);
  const auto score = [&](std::size_t i) HWY_ATTR {
    const VF t = hn::Mul(hn::LoadU(DF(), s + i), factor);
    if constexpr (kCapped) return hn::Mul(Tanh(t), cap);
    return t;
  };
  VF most = hidden;
  const auto put = [&](std::size_t i, VF t) HWY_ATTR {
    hn::StoreU(t, DF(), s + i);
    most = hn::Max(most, t);
  };
  const auto columns = static_cast<std::size_t>(b.columns);
  if constexpr (kMasked) {
    const RowSight sight(b, r);
    for (std::size_t i = 0; i < columns; i += kLanes) put(i, hn::IfThenElse(sight.Sees(i), score(i), hidden));
  } else {
    for (std::size_t i = 0; i < columns; i += kLanes) put(i, score(i));
  }
  return most;
}

// The maximum of plain products: four independent ones, to hide the latency.
HWY_INLINE VF MaxOfRow(const float* s, std::size_t columns) {
  VF a = hn::LoadU(DF(), s), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    a = hn::Max(a, hn::LoadU(DF(), s + i));
    b = hn::Max(b, hn::LoadU(DF(), s + i + kLanes));
    c = hn::Max(c, hn::LoadU(DF(), s + i + 2 * kLanes));
    d = hn::Max(d, hn::LoadU(DF(), s + i + 3 * kLanes));
  }
  for (; i < columns; i += kLanes) a = hn::Max(a, hn::LoadU(DF(), s + i));
  return hn::Max(hn::Max(a, b), hn::Max(c, d));
}

// p = 2^(factor s - most) of a row; returns the sum.
template <Probability kKind>
HWY_INLINE float ExpRow(const float* s, std::size_t columns, float factor, float most, void* p) {
  const VF f = Const(factor), m = Const(most);
  VF sum = hn::Zero(DF());
  for (std::size_t i = 0; i < columns; i += kLanes) {
    const VF e = Exp2<kKind == Probability::f32>(hn::MulSub(hn::LoadU(DF(), s + i), f, m));
    sum = hn::Add(sum, e);
    StoreAs<kKind>(e, p, i);
  }
  return SumLanes(sum);
}

HWY_INLINE void ScaleRow(float* x, std::size_t n, float factor) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(DF(), x + i), Const(factor)), DF(), x + i);
  for (; i < n; ++i) x[i] *= factor;
}

template <Probability kKind, bool kMasked, bool kCapped>
void SoftmaxRows(const ScoreBlock& b, const SoftmaxState& state) {
  const auto columns = static_cast<std::size_t>(b.columns), width = static_cast<std::size_t>(state.width);
  const bool plain = !kMasked && !kCapped && b.scale.scale > 0;  // scores are products times a factor
  const float factor = plain ? b.scale.scale * kLog2E : 1.0f;
  for (std::size_t r = 0; r < static_cast<std::size_t>(b.rows); ++r) {
    float* s = b.scores + r * columns;
    const VF mosts = plain ? MaxOfRow(s, columns) : ScoreRow<kMasked, kCapped>(b, r, s);
    float most = hn::GetLane(hn::MaxOfLanes(DF(), mosts)) * factor;
    const float before = state.most[r];
    most = most > before ? most : before;
    const float shift = most == kHidden ? 0.0f : most;  // -inf - -inf is NaN
    const float sum = ExpRow<kKind>(s, columns, factor, shift, PlaceOf<kKind>(b.p, r * columns));
    if (most != before) {
      const float old = hn::GetLane(Exp2<true>(Const(before - shift)));
      state.sum[r] *= old;
      ScaleRow(state.output + r * width, width, old);
      state.most[r] = most;
    }
    state.sum[r] += sum;
  }
}

// p = 2^(score - lse), and from do.v (dp) the gradient of q.k: scale p (dp - delta), times the cap's slope.
template <Probability kKind, bool kMasked, bool kCapped>
void GradRows(const ScoreBlock& b, const GradBlock& g) {
  constexpr bool kExact = kKind == Probability::f32;
  const auto columns = static_cast<std::size_t>(b.columns);
  const VF factor = Const(kCapped ? b.scale.scale / b.scale.cap : b.scale.scale * kLog2E);
  const VF cap = Const(b.scale.cap * kLog2E), scale = Const(b.scale.scale), one = Const(1.0f);
  for (std::size_t r = 0; r < static_cast<std::size_t>(b.rows); ++r) {
    const float *s = b.scores + r * columns, *dp = g.dp + r * columns;
    void *p_row = PlaceOf<kKind>(b.p, r * columns), *ds_row = PlaceOf<kKind>(g.ds, r * columns);
    const VF lse = Const(g.lse[r] * kLog2E), scaled_delta = Const(g.delta[r] * b.scale.scale);
    const auto step = [&](std::size_t i, auto seen) HWY_ATTR {
      VF p, slope = one;
      if constexpr (kCapped) {
        const VF t = Tanh(hn::Mul(hn::LoadU(DF(), s + i), factor));
        slope = hn::NegMulAdd(t, t, one);
        p = Exp2<kExact>(hn::MulSub(t, cap, lse));
      } else {
        p = Exp2<kExact>(hn::MulSub(hn::LoadU(DF(), s + i), factor, lse));
      }
      VF ds = hn::Mul(p, hn::MulSub(hn::LoadU(DF(), dp + i), scale, scaled_delta));
      if constexpr (kCapped) ds = hn::Mul(ds, slope);
      StoreAs<kKind>(seen(p), p_row, i);
      StoreAs<kKind>(seen(ds), ds_row, i);
    };
    if constexpr (kMasked) {
      const RowSight sight(b, r);
      for (std::size_t i = 0; i < columns; i += kLanes) {
        const auto visible = sight.Sees(i);
        step(i, [&](VF v) HWY_ATTR { return hn::IfThenElseZero(visible, v); });
      }
    } else {
      for (std::size_t i = 0; i < columns; i += kLanes) step(i, [](VF v) HWY_ATTR { return v; });
    }
  }
}

template <Probability kKind>
void SoftmaxAs(const ScoreBlock& b, const SoftmaxState& state) {
  const bool masked = b.mask != nullptr;
  if (b.scale.cap > 0) return masked ? SoftmaxRows<kKind, true, true>(b, state) : SoftmaxRows<kKind, false, true>(b, state);
  return masked ? SoftmaxRows<kKind, true, false>(b, state) : SoftmaxRows<kKind, false, false>(b, state);
}

template <Probability kKind>
void GradAs(const ScoreBlock& b, const GradBlock& g) {
  const bool masked = b.mask != nullptr;
  if (b.scale.cap > 0) return masked ? GradRows<kKind, true, true>(b, g) : GradRows<kKind, false, true>(b, g);
  return masked ? GradRows<kKind, true, false>(b, g) : GradRows<kKind, false, false>(b, g);
}

void Softmax(const ScoreBlock& b, const SoftmaxState& state, Probability kind) {
  switch (kind) {
    case Probability::f32: return SoftmaxAs<Probability::f32>(b, state);
    case Probability::bf16: return SoftmaxAs<Probability::bf16>(b, state);
    case Probability::rounded: return SoftmaxAs<Probability::rounded>(b, state);
  }
}

void Grad(const ScoreBlock& b, const GradBlock& g, Probability kind) {
  switch (kind) {
    case Probability::f32: return GradAs<Probability::f32>(b, g);
    case Probability::bf16: return GradAs<Probability::bf16>(b, g);
    case Probability::rounded: return GradAs<Probability::rounded>(b, g);
  }
}

void Finish(const SoftmaxState& state, std::int64_t rows, float* lse) {
  const auto width = static_cast<std::size_t>(state.width);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const bool saw_nothing = state.sum[r] == 0;
    ScaleRow(state.output + r * width, width, saw_nothing ? 0.0f : 1.0f / state.sum[r]);
    lse[r] = saw_nothing ? kHidden : state.most[r] * kLn2 + std::log(state.sum[r]);
  }
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Softmax);
HWY_EXPORT(Grad);
HWY_EXPORT(Finish);

void softmax_rows(const ScoreBlock& block, const SoftmaxState& state, Probability kind) {
  HWY_DYNAMIC_DISPATCH(Softmax)(block, state, kind);
}

void grad_rows(const ScoreBlock& block, const GradBlock& grad, Probability kind) {
  HWY_DYNAMIC_DISPATCH(Grad)(block, grad, kind);
}

void finish_rows(const SoftmaxState& state, std::int64_t rows, float* lse) {
  HWY_DYNAMIC_DISPATCH(Finish)(state, rows, lse);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
