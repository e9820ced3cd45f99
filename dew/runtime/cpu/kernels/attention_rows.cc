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

// The same for two vectors, side by side.
template <Probability kKind>
HWY_INLINE void StoreAs2(VF a, VF b, void* base, std::size_t i) {
  if constexpr (kKind == Probability::bf16) {
    StoreNear2(a, b, static_cast<std::uint16_t*>(base) + i);
  } else {
    StoreAs<kKind>(a, base, i);
    StoreAs<kKind>(b, base, i + kLanes);
  }
}

// Row r's part of a mask.
struct RowSight {
  VI low, high, segment;
  const ScoreMask& mask;
  std::size_t keys;

  RowSight(const ScoreBlock& b, std::size_t r)
      : low(hn::Set(DI(), b.mask.low[r])),
        high(hn::Set(DI(), b.mask.high[r])),
        segment(hn::Set(DI(), b.mask.q_segment[r])),
        mask(b.mask),
        keys(static_cast<std::size_t>(b.keys)) {}

  HWY_INLINE auto Sees(std::size_t i) const {
    const DI d;
    const VI p = hn::LoadU(d, mask.position + i);
    const auto outside = hn::Or(hn::Gt(low, p), hn::Gt(p, high));
    const auto same = hn::Eq(hn::LoadU(d, mask.k_segment + i), segment);
    const auto real = hn::FirstN(d, i < keys ? keys - i : 0);
    return hn::RebindMask(DF(), hn::And(hn::AndNot(outside, same), real));
  }
};

// Scores are products times a factor, unless there is a cap or a negative scale; then they are made first.
HWY_INLINE VF MakeScore(const ScoreScale& scale, VF product) {
  if (scale.cap == 0) return hn::Mul(product, Const(scale.scale * kLog2E));
  return hn::Mul(Tanh(hn::Mul(product, Const(scale.scale / scale.cap))), Const(scale.cap * kLog2E));
}

// The greatest of [begin, end) of a row: two of its vectors in turn, to hide the latency.
HWY_INLINE VF MaxOf(const float* s, std::size_t begin, std::size_t end, VF most) {
  VF other = most;
  std::size_t i = begin;
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    most = hn::Max(most, hn::LoadU(DF(), s + i));
    other = hn::Max(other, hn::LoadU(DF(), s + i + kLanes));
  }
  if (i < end) most = hn::Max(most, hn::LoadU(DF(), s + i));
  return hn::Max(most, other);
}

// Hides what row r does not see, makes scores if that is needed, and returns the greatest.
template <bool kMade>
HWY_INLINE float GreatestOfRow(const ScoreBlock& b, std::size_t r, float* s) {
  const VF hidden = Const(kHidden);
  const auto columns = static_cast<std::size_t>(b.columns), part = static_cast<std::size_t>(b.part);
  VF most = hidden;
  std::size_t begin = 0;
  for (unsigned masked = b.masked; begin < columns; begin += part, masked >>= 1) {
    if (!kMade && (masked & 1) == 0) {
      most = MaxOf(s, begin, begin + part, most);
      continue;
    }
    const RowSight sight(b, r);
    for (std::size_t i = begin; i < begin + part; i += kLanes) {
      VF t = hn::LoadU(DF(), s + i);
      if (kMade) t = MakeScore(b.scale, t);
      if ((masked & 1) != 0) t = hn::IfThenElse(sight.Sees(i), t, hidden);
      hn::StoreU(t, DF(), s + i);
      most = hn::Max(most, t);
    }
  }
  return hn::GetLane(hn::MaxOfLanes(DF(), most));
}

// p = 2^(factor s - shift) of a row; returns the sum.
template <Probability kKind, bool kMasked>
HWY_INLINE float ExpRow(const float* s, std::size_t columns, float factor, float shift, void* p) {
  const VF f = Const(factor), m = Const(shift);
  const auto exp = [&](std::size_t i) HWY_ATTR {
    return Exp2<kKind == Probability::f32, kMasked>(hn::MulSub(hn::LoadU(DF(), s + i), f, m));
  };
  VF sum = hn::Zero(DF()), other = sum;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    const VF a = exp(i), c = exp(i + kLanes);
    sum = hn::Add(sum, a);
    other = hn::Add(other, c);
    StoreAs2<kKind>(a, c, p, i);
  }
  if (i < columns) {
    const VF a = exp(i);
    sum = hn::Add(sum, a);
    StoreAs<kKind>(a, p, i);
  }
  return SumLanes(hn::Add(sum, other));
}

HWY_INLINE void ScaleRow(float* x, std::size_t n, float factor) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(DF(), x + i), Const(factor)), DF(), x + i);
  for (; i < n; ++i) x[i] *= factor;
}

// What the rows of a block share, between the steps of softmax.
struct RowNumbers {
  HWY_ALIGN float greatest[kMostRows];  // of the scores, times the factor still missing
  HWY_ALIGN float shift[kMostRows];     // subtracted from scores
  HWY_ALIGN float kept[kMostRows];      // factor of what earlier blocks left
  HWY_ALIGN float sum[kMostRows];
};

// New maxima, and what follows from them.
HWY_INLINE void UpdateMaxima(const SoftmaxState& state, std::size_t rows, float factor, RowNumbers& n) {
  const VF hidden = Const(kHidden);
  for (std::size_t r = 0; r < rows; r += kLanes) {
    const std::size_t left = SmallerOf(rows - r, kLanes);
    const VF before = LoadPart(state.most + r, left);
    const VF now = hn::Max(before, hn::Mul(hn::Load(DF(), n.greatest + r), Const(factor)));
    const VF shift = hn::IfThenZeroElse(hn::Eq(now, hidden), now);  // -inf - -inf is NaN
    // What nothing was added to stays 0 with any factor.
    const VF kept = hn::IfThenElse(hn::Eq(before, hidden), Const(1.0f), Exp2<true, true>(hn::Sub(before, shift)));
    hn::Store(shift, DF(), n.shift + r);
    hn::Store(kept, DF(), n.kept + r);
    StorePart(now, state.most + r, left);
  }
}

HWY_INLINE void UpdateSums(const SoftmaxState& state, std::size_t rows, const RowNumbers& n) {
  const auto width = static_cast<std::size_t>(state.width);
  for (std::size_t r = 0; r < rows; r += kLanes) {
    const std::size_t left = SmallerOf(rows - r, kLanes);
    const VF before = LoadPart(state.sum + r, left);
    StorePart(hn::MulAdd(before, hn::Load(DF(), n.kept + r), hn::Load(DF(), n.sum + r)), state.sum + r, left);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    if (n.kept[r] != 1.0f) ScaleRow(state.output + r * width, width, n.kept[r]);
  }
}

template <Probability kKind, bool kMasked>
void SoftmaxRows(const ScoreBlock& b, const SoftmaxState& state) {
  const auto columns = static_cast<std::size_t>(b.columns), rows = static_cast<std::size_t>(b.rows);
  const bool made = b.scale.cap > 0 || !(b.scale.scale > 0);
  const float factor = made ? 1.0f : b.scale.scale * kLog2E;
  RowNumbers n;
  for (std::size_t r = 0; r < rows; ++r) {
    float* s = b.scores + r * columns;
    n.greatest[r] = made ? GreatestOfRow<true>(b, r, s) : GreatestOfRow<false>(b, r, s);
  }
  UpdateMaxima(state, rows, factor, n);
  for (std::size_t r = 0; r < rows; ++r) {
    void* const p = PlaceOf<kKind>(b.p, r * columns);
    n.sum[r] = ExpRow<kKind, kMasked>(b.scores + r * columns, columns, factor, n.shift[r], p);
  }
  UpdateSums(state, rows, n);
}

// p = 2^(score - lse), and from do.v (dp) the gradient of q.k: scale p (dp - delta), times the cap's slope.
template <bool kExact, bool kCapped>
struct GradRow {
  VF factor, cap, scale, lse, delta;
  const float *s, *dp;

  GradRow(const ScoreBlock& b, const GradBlock& g, std::size_t r)
      : factor(Const(kCapped ? b.scale.scale / b.scale.cap : b.scale.scale * kLog2E)),
        cap(Const(b.scale.cap * kLog2E)),
        scale(Const(b.scale.scale)),
        lse(Const(g.lse[r] * kLog2E)),
        delta(Const(kCapped ? g.delta[r] : g.delta[r] * b.scale.scale)),
        s(b.scores + r * static_cast<std::size_t>(b.columns)),
        dp(g.dp + r * static_cast<std::size_t>(b.columns)) {}

  template <bool kMasked>
  HWY_INLINE void At(std::size_t i, const RowSight* sight, VF& p, VF& ds) const {
    const VF product = hn::LoadU(DF(), s + i), d = hn::LoadU(DF(), dp + i);
    if constexpr (kCapped) {
      const VF t = Tanh(hn::Mul(product, factor));
      const VF slope = hn::Mul(scale, hn::NegMulAdd(t, t, Const(1.0f)));
      p = Exp2<kExact, kMasked>(hn::MulSub(t, cap, lse));
      ds = hn::Mul(hn::Mul(p, slope), hn::Sub(d, delta));
    } else {
      p = Exp2<kExact, kMasked>(hn::MulSub(product, factor, lse));
      ds = hn::Mul(p, hn::MulSub(d, scale, delta));
    }
    if constexpr (kMasked) {
      const auto visible = sight->Sees(i);
      p = hn::IfThenElseZero(visible, p);
      ds = hn::IfThenElseZero(visible, ds);
    }
  }
};

// Columns [i, end) of a row.
template <Probability kKind, bool kMasked, class Row>
HWY_INLINE void GradPart(const Row& row, const RowSight* sight, std::size_t i, std::size_t end, void* p, void* ds) {
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    VF p0, p1, ds0, ds1;
    row.template At<kMasked>(i, sight, p0, ds0);
    row.template At<kMasked>(i + kLanes, sight, p1, ds1);
    StoreAs2<kKind>(p0, p1, p, i);
    StoreAs2<kKind>(ds0, ds1, ds, i);
  }
  if (i < end) {
    VF p0, ds0;
    row.template At<kMasked>(i, sight, p0, ds0);
    StoreAs<kKind>(p0, p, i);
    StoreAs<kKind>(ds0, ds, i);
  }
}

template <Probability kKind, bool kCapped>
void GradRows(const ScoreBlock& b, const GradBlock& g) {
  const auto columns = static_cast<std::size_t>(b.columns), part = static_cast<std::size_t>(b.part);
  for (std::size_t r = 0; r < static_cast<std::size_t>(b.rows); ++r) {
    const GradRow<kKind == Probability::f32, kCapped> row(b, g, r);
    void *const p = PlaceOf<kKind>(b.p, r * columns), *const ds = PlaceOf<kKind>(g.ds, r * columns);
    if (b.masked == 0) {
      GradPart<kKind, false>(row, nullptr, 0, columns, p, ds);
      continue;
    }
    const RowSight sight(b, r);
    unsigned masked = b.masked;
    for (std::size_t begin = 0; begin < columns; begin += part, masked >>= 1) {
      if ((masked & 1) != 0) {
        GradPart<kKind, true>(row, &sight, begin, begin + part, p, ds);
      } else {
        GradPart<kKind, false>(row, nullptr, begin, begin + part, p, ds);
      }
    }
  }
}

template <Probability kKind>
void SoftmaxAs(const ScoreBlock& b, const SoftmaxState& state) {
  return b.masked != 0 ? SoftmaxRows<kKind, true>(b, state) : SoftmaxRows<kKind, false>(b, state);
}

template <Probability kKind>
void GradAs(const ScoreBlock& b, const GradBlock& g) {
  return b.scale.cap > 0 ? GradRows<kKind, true>(b, g) : GradRows<kKind, false>(b, g);
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
