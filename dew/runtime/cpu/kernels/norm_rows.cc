#include "dew/runtime/cpu/kernels/norm_rows.h"

#include <cmath>
#include <type_traits>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/norm_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE float InverseRoot(float x) { return 1.0f / std::sqrt(x); }

template <class Kind, class Bytes>
HWY_INLINE auto* RowOf(Bytes* base, std::size_t row, std::size_t e) {
  using T = typename Kind::T;
  if constexpr (std::is_const_v<Bytes>)
    return reinterpret_cast<const T*>(base) + row * e;
  else
    return reinterpret_cast<T*>(base) + row * e;
}

template <class Kind>
void Rms(const NormRows& a) {
  const auto e = static_cast<std::size_t>(a.e);
  const float* const scale = a.scale;
  for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
    const auto* const x = RowOf<Kind>(a.x, row, e);
    auto* const y = RowOf<Kind>(a.y, row, e);
    const OneSum squares = SumRow<OneSum>(e, [&](OneSum& s, std::size_t i, auto part) HWY_ATTR {
      const VF v = part.template Load<Kind>(x + i);
      s.a = hn::MulAdd(v, v, s.a);
    });
    const float r = InverseRoot(SumLanes(squares.a) / static_cast<float>(e) + a.epsilon);
    a.r[row] = r;
    const VF vr = hn::Set(DF(), r);
    ForRow(e, [&](std::size_t i, auto part) HWY_ATTR {
      const VF n = hn::Mul(part.template Load<Kind>(x + i), vr);
      part.template Store<Kind>(hn::Mul(n, part.template Load<Bits32>(scale + i)), y + i);
    });
  }
}

// dx = r (scale g) - x r^3 / e sum(scale g x); dscale += g x r.
template <class Kind>
void RmsGrad(const NormRows& a) {
  const auto e = static_cast<std::size_t>(a.e);
  const float* const scale = a.scale;
  float* const dscale = a.dscale;
  for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
    const auto* const x = RowOf<Kind>(a.x, row, e);
    const auto* const g = RowOf<Kind>(a.g, row, e);
    auto* const dx = RowOf<Kind>(a.y, row, e);
    const OneSum along = SumRow<OneSum>(e, [&](OneSum& s, std::size_t i, auto part) HWY_ATTR {
      const VF h = hn::Mul(part.template Load<Kind>(g + i), part.template Load<Bits32>(scale + i));
      s.a = hn::MulAdd(h, part.template Load<Kind>(x + i), s.a);
    });
    const float r = a.r[row];
    const VF vr = hn::Set(DF(), r);
    const VF back = hn::Set(DF(), r * r * r * (SumLanes(along.a) / static_cast<float>(e)));
    ForRow(e, [&](std::size_t i, auto part) HWY_ATTR {
      const VF vg = part.template Load<Kind>(g + i), vx = part.template Load<Kind>(x + i);
      const VF h = hn::Mul(vg, part.template Load<Bits32>(scale + i));
      const VF sum = hn::MulAdd(vg, hn::Mul(vx, vr), part.template Load<Bits32>(dscale + i));
      part.template Store<Bits32>(sum, dscale + i);
      part.template Store<Kind>(hn::NegMulAdd(vx, back, hn::Mul(vr, h)), dx + i);
    });
  }
}

template <class Kind>
void Layer(const NormRows& a) {
  const auto e = static_cast<std::size_t>(a.e);
  const float* const scale = a.scale;
  const float* const bias = a.bias;
  for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
    const auto* const x = RowOf<Kind>(a.x, row, e);
    auto* const y = RowOf<Kind>(a.y, row, e);
    const OneSum sum = SumRow<OneSum>(e, [&](OneSum& s, std::size_t i, auto part) HWY_ATTR {
      s.a = hn::Add(s.a, part.template Load<Kind>(x + i));
    });
    const float mean = SumLanes(sum.a) / static_cast<float>(e);
    const VF m = hn::Set(DF(), mean);
    const OneSum squares = SumRow<OneSum>(e, [&](OneSum& s, std::size_t i, auto part) HWY_ATTR {
      const VF v = part.ZeroRest(hn::Sub(part.template Load<Kind>(x + i), m));
      s.a = hn::MulAdd(v, v, s.a);
    });
    const float r = InverseRoot(SumLanes(squares.a) / static_cast<float>(e) + a.epsilon);
    a.mean[row] = mean;
    a.r[row] = r;
    const VF vr = hn::Set(DF(), r);
    ForRow(e, [&](std::size_t i, auto part) HWY_ATTR {
      const VF n = hn::Mul(hn::Sub(part.template Load<Kind>(x + i), m), vr);
      const VF v = hn::MulAdd(n, part.template Load<Bits32>(scale + i),
                              part.template Load<Bits32>(bias + i));
      part.template Store<Kind>(v, y + i);
    });
  }
}

// With h = scale g and n = (x - mean) r: dx = r (h - mean of h - n * mean of h n); dscale += g n,
// dbias += g.
template <class Kind>
void LayerGrad(const NormRows& a) {
  const auto e = static_cast<std::size_t>(a.e);
  const float* const scale = a.scale;
  float* const dscale = a.dscale;
  float* const dbias = a.dbias;
  for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
    const auto* const x = RowOf<Kind>(a.x, row, e);
    const auto* const g = RowOf<Kind>(a.g, row, e);
    auto* const dx = RowOf<Kind>(a.y, row, e);
    const VF vr = hn::Set(DF(), a.r[row]), m = hn::Set(DF(), a.mean[row]);
    // h is zero behind the end, so h n is.
    const TwoSums sums = SumRow<TwoSums>(e, [&](TwoSums& s, std::size_t i, auto part) HWY_ATTR {
      const VF h = hn::Mul(part.template Load<Kind>(g + i), part.template Load<Bits32>(scale + i));
      const VF n = hn::Mul(hn::Sub(part.template Load<Kind>(x + i), m), vr);
      s.a = hn::Add(s.a, h);
      s.b = hn::MulAdd(h, n, s.b);
    });
    const VF h_mean = hn::Set(DF(), SumLanes(sums.a) / static_cast<float>(e));
    const VF hn_mean = hn::Set(DF(), SumLanes(sums.b) / static_cast<float>(e));
    ForRow(e, [&](std::size_t i, auto part) HWY_ATTR {
      const VF vg = part.template Load<Kind>(g + i);
      const VF n = hn::Mul(hn::Sub(part.template Load<Kind>(x + i), m), vr);
      const VF h = hn::Mul(vg, part.template Load<Bits32>(scale + i));
      part.template Store<Bits32>(hn::MulAdd(vg, n, part.template Load<Bits32>(dscale + i)),
                                  dscale + i);
      part.template Store<Bits32>(hn::Add(vg, part.template Load<Bits32>(dbias + i)), dbias + i);
      part.template Store<Kind>(hn::Mul(vr, hn::NegMulAdd(n, hn_mean, hn::Sub(h, h_mean))), dx + i);
    });
  }
}

void AddRow(const float* from, float* to, std::int64_t n) {
  ForRow(static_cast<std::size_t>(n), [&](std::size_t i, auto part) HWY_ATTR {
    const VF sum =
        hn::Add(part.template Load<Bits32>(to + i), part.template Load<Bits32>(from + i));
    part.template Store<Bits32>(sum, to + i);
  });
}

const NormTable& Table() {
  static const NormTable table = {{Rms<Bits32>, Rms<Brain16>},
                                  {RmsGrad<Bits32>, RmsGrad<Brain16>},
                                  {Layer<Bits32>, Layer<Brain16>},
                                  {LayerGrad<Bits32>, LayerGrad<Brain16>},
                                  AddRow};
  return table;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Table);

const NormTable& norm_table() { return HWY_DYNAMIC_DISPATCH(Table)(); }

}  // namespace dew::cpu
#endif  // HWY_ONCE
