// The shapes of codes: accumulator only, accumulator and one place, accumulator and two places.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"
#include "dew/runtime/cpu/kernels/fused_ops.h"

#if defined(DEW_FUSED_CODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEW_FUSED_CODE_INL_H_
#undef DEW_FUSED_CODE_INL_H_
#else
#define DEW_FUSED_CODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

constexpr std::size_t kRound = 8 * kLanes;  // elements in the accumulator
static_assert(kBlock % kRound == 0);

// Eight vectors are what the calling conventions of x86-64 and AArch64 pass in registers.
#define DEW_ACC VF v0, VF v1, VF v2, VF v3, VF v4, VF v5, VF v6, VF v7
using Routine = void (*)(const Code*, const Place*, std::size_t, DEW_ACC);

// Same parameters, nothing to clean up: a jump.
#define DEW_NEXT() \
  return reinterpret_cast<Routine>(pc[1].fn)(pc + 1, places, i, v0, v1, v2, v3, v4, v5, v6, v7)

// statement(k, vk) for every vector.
#define DEW_EACH(statement)                                                            \
  statement(0, v0) statement(1, v1) statement(2, v2) statement(3, v3) statement(4, v4) \
      statement(5, v5) statement(6, v6) statement(7, v7)

template <class T>
using D = hn::ScalableTag<T>;

template <class T, class V>
HWY_INLINE hn::Vec<D<T>> As(V v) {
  return hn::BitCast(D<T>(), v);
}

template <class T>
HWY_INLINE T* At(const Place& place, std::size_t i) {
  return reinterpret_cast<T*>(place.p) + (i & place.mask);
}

template <class T>
HWY_INLINE hn::Vec<D<T>> Get(const float* p, std::size_t k) {
  return As<T>(hn::LoadU(DF(), p + k * kLanes));
}

template <class Op, class T>
void UnaryCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
#define DEW_STEP(k, v) v = As<float>(Op()(D<T>(), As<T>(v)));
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

// For ops of many instructions: in a loop, so that they are not compiled eight times.
template <class Op, class T>
void LongUnaryCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  HWY_ALIGN float lanes[kRound];
#define DEW_STEP(k, v) hn::Store(v, DF(), lanes + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  for (std::size_t k = 0; k < 8; k += 2) {
    float* const p = lanes + k * kLanes;
    const auto a = As<T>(hn::Load(DF(), p)), b = As<T>(hn::Load(DF(), p + kLanes));
    hn::Store(As<float>(Op()(D<T>(), a)), DF(), p);
    hn::Store(As<float>(Op()(D<T>(), b)), DF(), p + kLanes);
  }
#define DEW_STEP(k, v) v = hn::Load(DF(), lanes + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

template <class Op, class T, Form kForm>
void BinaryCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  [[maybe_unused]] const float* m = nullptr;
  if constexpr (kForm != Form::acc_acc) m = At<const float>(places[pc->a], i);
#define DEW_STEP(k, v)                                   \
  if constexpr (kForm == Form::acc_acc)                  \
    v = As<float>(Op()(D<T>(), As<T>(v), As<T>(v)));     \
  else if constexpr (kForm == Form::acc_mem)             \
    v = As<float>(Op()(D<T>(), As<T>(v), Get<T>(m, k))); \
  else                                                   \
    v = As<float>(Op()(D<T>(), Get<T>(m, k), As<T>(v)));
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

template <Form kForm>
void SelectCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  const float* const a = At<const float>(places[pc->a], i);
  const float* const b = At<const float>(places[pc->b], i);
#define DEW_STEP(k, v)                                                          \
  if constexpr (kForm == Form::select_first) {                                  \
    v = hn::IfThenElse(hn::MaskFromVec(v), Get<float>(a, k), Get<float>(b, k)); \
  } else if constexpr (kForm == Form::select_second) {                          \
    v = hn::IfThenElse(hn::MaskFromVec(Get<float>(a, k)), v, Get<float>(b, k)); \
  } else {                                                                      \
    v = hn::IfThenElse(hn::MaskFromVec(Get<float>(a, k)), Get<float>(b, k), v); \
  }
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

// One element after the other, for what is rare and has no vector form.
template <class Each, class T, Form kForm>
void ElementCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  HWY_ALIGN float lanes[kRound];
#define DEW_STEP(k, v) hn::Store(v, DF(), lanes + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  const float* const m =
      kForm == Form::acc_mem || kForm == Form::mem_acc ? At<const float>(places[pc->a], i) : lanes;
  for (std::size_t k = 0; k < kRound; ++k) {
    T x, y;
    __builtin_memcpy(&x, (kForm == Form::mem_acc ? m : lanes) + k, sizeof x);
    __builtin_memcpy(&y, (kForm == Form::mem_acc ? lanes : m) + k, sizeof y);
    const T z = Each::Apply(x, y, pc->number);
    __builtin_memcpy(lanes + k, &z, sizeof z);
  }
#define DEW_STEP(k, v) v = hn::Load(DF(), lanes + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

// Kind: how a dtype is stored (copy_range-inl.h).
template <class Kind>
void LoadCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  const auto* const p = At<const typename Kind::T>(places[pc->a], i);
#define DEW_STEP(k, v) v = Kind::Load(p + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

template <class Kind>
void StoreCode(const Code* pc, const Place* places, std::size_t i, DEW_ACC) {
  auto* const p = At<typename Kind::T>(places[pc->a], i);
#define DEW_STEP(k, v) Kind::Store(v, p + k * kLanes);
  DEW_EACH(DEW_STEP)
#undef DEW_STEP
  DEW_NEXT();
}

inline void HaltCode(const Code*, const Place*, std::size_t, VF, VF, VF, VF, VF, VF, VF, VF) {}

inline void RunCodes(const Code* string, const Place* places, std::size_t first, std::size_t last) {
  const auto start = reinterpret_cast<Routine>(string->fn);
  const VF zero = hn::Zero(DF());
  for (std::size_t block = first; block < last; block += kBlock) {
    for (std::size_t i = block; i < block + kBlock; i += kRound) {
      start(string, places, i, zero, zero, zero, zero, zero, zero, zero, zero);
    }
  }
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for each target
