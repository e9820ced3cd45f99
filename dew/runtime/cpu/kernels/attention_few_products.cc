#include "dew/runtime/cpu/kernels/attention_few.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/attention_few_products.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

template <class Kind>
HWY_INLINE float Dot(const typename Kind::T* key, const float* q, std::size_t n) {
  VF a = hn::Zero(DF()), b = a;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::MulAdd(Kind::Load(key + i), hn::LoadU(DF(), q + i), a);
    b = hn::MulAdd(Kind::Load(key + i + kLanes), hn::LoadU(DF(), q + i + kLanes), b);
  }
  for (; i < n; i += kLanes) {
    const std::size_t left = SmallerOf(n - i, kLanes);
    a = hn::MulAdd(Kind::LoadSome(key + i, left), LoadPart(q + i, left), a);
  }
  return SumLanes(hn::Add(a, b));
}

template <class Kind>
void Scores(const KeyRun& keys, const float* q, float* scores) {
  const auto* const data = reinterpret_cast<const typename Kind::T*>(keys.data);
  const auto width = static_cast<std::size_t>(keys.width);
  for (std::int64_t j = 0; j < keys.count; ++j) {
    for (std::int64_t h = 0; h < keys.kv_heads; ++h) {
      const auto* const key = data + j * keys.key_stride + h * keys.head_stride;
      for (std::int64_t r = h * keys.rows; r < (h + 1) * keys.rows; ++r)
        scores[r * keys.columns + j] = Dot<Kind>(key, q + r * keys.width, width);
    }
  }
}

// kKeys values at a time, so that sums are read and written less often.
template <class Kind, int kKeys>
HWY_INLINE void AddValues(const KeyRun& v, const typename Kind::T* value, const float* p,
                          float* out) {
  const auto n = static_cast<std::size_t>(v.width);
  for (std::int64_t r = 0; r < v.rows; ++r, p += v.columns, out += v.width) {
    VF factor[kKeys];
    for (int j = 0; j < kKeys; ++j) factor[j] = hn::Set(DF(), p[j]);
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      VF sum = hn::LoadU(DF(), out + i);
      for (int j = 0; j < kKeys; ++j) {
        const auto at = static_cast<std::size_t>(j * v.key_stride) + i;
        sum = hn::MulAdd(factor[j], Kind::Load(value + at), sum);
      }
      hn::StoreU(sum, DF(), out + i);
    }
    if (i == n) continue;
    VF sum = LoadPart(out + i, n - i);
    for (int j = 0; j < kKeys; ++j) {
      const auto at = static_cast<std::size_t>(j * v.key_stride) + i;
      sum = hn::MulAdd(factor[j], Kind::LoadSome(value + at, n - i), sum);
    }
    StorePart(sum, out + i, n - i);
  }
}

template <class Kind>
void Values(const KeyRun& v, const float* p, float* out) {
  constexpr int kKeys = 4;
  const auto* const data = reinterpret_cast<const typename Kind::T*>(v.data);
  const auto each_head = [&](std::int64_t j, auto add) {
    for (std::int64_t h = 0; h < v.kv_heads; ++h) {
      add(v, data + j * v.key_stride + h * v.head_stride, p + h * v.rows * v.columns + j,
          out + h * v.rows * v.width);
    }
  };
  std::int64_t j = 0;
  for (; j + kKeys <= v.count; j += kKeys) each_head(j, AddValues<Kind, kKeys>);
  for (; j < v.count; ++j) each_head(j, AddValues<Kind, 1>);
}

void ScoresF32(const KeyRun& keys, const float* q, float* scores) {
  Scores<Bits32>(keys, q, scores);
}
void ScoresBf16(const KeyRun& keys, const float* q, float* scores) {
  Scores<Brain16>(keys, q, scores);
}
void ValuesF32(const KeyRun& v, const float* p, float* out) { Values<Bits32>(v, p, out); }
void ValuesBf16(const KeyRun& v, const float* p, float* out) { Values<Brain16>(v, p, out); }

void AddScaled(const float* x, float factor, std::size_t n, float* out) {
  const VF f = hn::Set(DF(), factor);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::MulAdd(f, hn::LoadU(DF(), x + i), hn::LoadU(DF(), out + i)), DF(), out + i);
  if (i < n)
    StorePart(hn::MulAdd(f, LoadPart(x + i, n - i), LoadPart(out + i, n - i)), out + i, n - i);
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(ScoresF32);
HWY_EXPORT(ScoresBf16);
HWY_EXPORT(ValuesF32);
HWY_EXPORT(ValuesBf16);
HWY_EXPORT(AddScaled);

void few_scores(const KeyRun& keys, const float* q, float* scores) {
  keys.dtype == DType::f32 ? HWY_DYNAMIC_DISPATCH(ScoresF32)(keys, q, scores)
                           : HWY_DYNAMIC_DISPATCH(ScoresBf16)(keys, q, scores);
}

void few_values(const KeyRun& values, const float* p, float* out) {
  values.dtype == DType::f32 ? HWY_DYNAMIC_DISPATCH(ValuesF32)(values, p, out)
                             : HWY_DYNAMIC_DISPATCH(ValuesBf16)(values, p, out);
}

void add_scaled(const float* x, float factor, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, static_cast<std::size_t>(n), out);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
