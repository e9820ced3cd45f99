#include "dew/runtime/cpu/kernels/attention_rows.h"

#include <limits>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/attention_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kHidden =
    -std::numeric_limits<float>::infinity();  // score of a key that is not seen

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
    hn::StoreU(kKind == Probability::rounded ? RoundNear(v) : v, DF(),
               static_cast<float*>(base) + i);
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
    const auto seen = hn::AndNot(outside, same);
    if (i + kLanes <= keys) return hn::RebindMask(DF(), seen);
    const auto real = hn::FirstN(d, i < keys ? keys - i : 0);
    return hn::RebindMask(DF(), hn::And(seen, real));
  }
};

// Scores are products times a factor, unless there is a cap or a negative scale; then they are made
// first.
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
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(DF(), x + i), Const(factor)), DF(), x + i);
  for (; i < n; ++i) x[i] *= factor;
}

HWY_INLINE float* OutputRow(const SoftmaxState& state, std::size_t r) {
  return state.output + r * static_cast<std::size_t>(state.output_row);
}

// Numbers of a few rows, one a lane.
struct GroupState {
  VF shift;  // subtracted from scores
  VF kept;   // factor of what earlier blocks left
};

// New maxima, and what follows from them. `greatest`: of the rows' scores.
HWY_INLINE GroupState UpdateMaxima(float* most, std::size_t rows, VF greatest) {
  const VF hidden = Const(kHidden);
  const VF before = LoadPart(most, rows);
  const VF now = hn::Max(before, greatest);
  StorePart(now, most, rows);
  const VF shift = hn::IfThenZeroElse(hn::Eq(now, hidden), now);  // -inf - -inf is NaN
  // What nothing was added to stays 0 with any factor.
  const VF kept =
      hn::IfThenElse(hn::Eq(before, hidden), Const(1.0f), Exp2<true, true>(hn::Sub(before, shift)));
  return {shift, kept};
}

// Rows [first, first + rows): few enough that their scores, once read for the maximum, are still in
// L1 for the powers.
template <Probability kKind, bool kMasked>
HWY_INLINE void SoftmaxGroup(const ScoreBlock& b, const SoftmaxState& state, std::size_t first,
                             std::size_t rows) {
  const auto columns = static_cast<std::size_t>(b.columns);
  const bool made = b.scale.cap > 0 || !(b.scale.scale > 0);
  const float factor = made ? 1.0f : b.scale.scale * kLog2E;
  HWY_ALIGN float numbers[kLanes] = {}, kept[kLanes];
  for (std::size_t r = 0; r < rows; ++r) {
    float* s = b.scores + (first + r) * columns;
    numbers[r] =
        made ? GreatestOfRow<true>(b, first + r, s) : GreatestOfRow<false>(b, first + r, s);
  }
  const GroupState g =
      UpdateMaxima(state.most + first, rows, hn::Mul(hn::Load(DF(), numbers), Const(factor)));
  hn::Store(g.shift, DF(), numbers);
  hn::Store(g.kept, DF(), kept);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = (first + r) * columns;
    numbers[r] =
        ExpRow<kKind, kMasked>(b.scores + at, columns, factor, numbers[r], PlaceOf<kKind>(b.p, at));
  }
  const VF before = LoadPart(state.sum + first, rows);
  StorePart(hn::MulAdd(before, g.kept, hn::Load(DF(), numbers)), state.sum + first, rows);
  for (std::size_t r = 0; r < rows; ++r) {
    if (kept[r] != 1.0f)
      ScaleRow(OutputRow(state, first + r), static_cast<std::size_t>(state.width), kept[r]);
  }
}

template <Probability kKind, bool kMasked>
void SoftmaxRows(const ScoreBlock& b, const SoftmaxState& state) {
  const auto rows = static_cast<std::size_t>(b.rows);
  for (std::size_t r = 0; r < rows; r += kLanes) {
    SoftmaxGroup<kKind, kMasked>(b, state, r, SmallerOf(rows - r, kLanes));
  }
}

// p = 2^(score - lse), and from do.v (dp) the gradient of q.k: scale p (dp - delta), times the
// cap's slope.
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
HWY_INLINE void GradPart(const Row& row, const RowSight* sight, std::size_t i, std::size_t end,
                         void* p, void* ds) {
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
    case Probability::f32:
      return SoftmaxAs<Probability::f32>(b, state);
    case Probability::bf16:
      return SoftmaxAs<Probability::bf16>(b, state);
    case Probability::rounded:
      return SoftmaxAs<Probability::rounded>(b, state);
  }
}

void Grad(const ScoreBlock& b, const GradBlock& g, Probability kind) {
  switch (kind) {
    case Probability::f32:
      return GradAs<Probability::f32>(b, g);
    case Probability::bf16:
      return GradAs<Probability::bf16>(b, g);
    case Probability::rounded:
      return GradAs<Probability::rounded>(b, g);
  }
}

HWY_INLINE void FinishRow(const float* sum, std::size_t width, float factor, const FinishedRows& to,
                          std::size_t r) {
  const std::size_t at = r * static_cast<std::size_t>(to.row);
  const VF f = Const(factor);
  std::size_t i = 0;
  if (to.bf16) {
    auto* o = static_cast<std::uint16_t*>(to.o) + at;
    for (; i + kLanes <= width; i += kLanes)
      StoreBf16(hn::Mul(hn::LoadU(DF(), sum + i), f), DF(), o + i);
    HWY_ALIGN std::uint16_t rest[kLanes];
    StoreBf16(hn::Mul(LoadPart(sum + i, width - i), f), DF(), rest);
    for (std::size_t j = 0; i + j < width; ++j) o[i + j] = rest[j];
  } else {
    auto* o = static_cast<float*>(to.o) + at;
    for (; i + kLanes <= width; i += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(DF(), sum + i), f), DF(), o + i);
    for (; i < width; ++i) o[i] = sum[i] * factor;
  }
}

void Finish(const SoftmaxState& state, std::size_t rows, const FinishedRows& to) {
  HWY_ALIGN float factor[kLanes];
  for (std::size_t first = 0; first < rows; first += kLanes) {
    const std::size_t left = SmallerOf(rows - first, kLanes);
    const VF sum = LoadPart(state.sum + first, left), most = LoadPart(state.most + first, left);
    const auto saw_nothing = hn::Eq(sum, hn::Zero(DF()));
    const VF seen = hn::MulAdd(most, Const(kLn2), Log(sum));
    StorePart(hn::IfThenElse(saw_nothing, Const(kHidden), seen), to.lse + first, left);
    hn::Store(hn::IfThenZeroElse(saw_nothing, hn::Div(Const(1.0f), sum)), DF(), factor);
    for (std::size_t r = 0; r < left; ++r) {
      FinishRow(OutputRow(state, first + r), static_cast<std::size_t>(state.width), factor[r], to,
                first + r);
    }
  }
}

}  // namespace
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

void finish_rows(const SoftmaxState& state, std::int64_t rows, const FinishedRows& to) {
  HWY_DYNAMIC_DISPATCH(Finish)(state, static_cast<std::size_t>(rows), to);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
