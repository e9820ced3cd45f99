#include "dew/runtime/cpu/kernels/norm_rows.h"

#include <cmath>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/norm_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

// Calls body(i, load, store) for the vectors of a row; the last one may be shorter, and then load and store touch only what
// is there and load gives zeros behind it.
struct Whole {
  template <class Kind>
  static HWY_INLINE VF Load(const typename Kind::T* p) {
    return Kind::Load(p);
  }
  template <class Kind>
  static HWY_INLINE void Store(VF v, typename Kind::T* p) {
    Kind::Store(v, p);
  }
};

struct Part {
  std::size_t n;
  template <class Kind>
  HWY_INLINE VF Load(const typename Kind::T* p) const {
    return LoadPartOf<Kind>(p, n);
  }
  template <class Kind>
  HWY_INLINE void Store(VF v, typename Kind::T* p) const {
    StorePartOf<Kind>(v, p, n);
  }
};

template <class Body>
HWY_INLINE void ForRow(std::size_t e, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= e; i += kLanes) body(i, Whole());
  if (i < e) body(i, Part{e - i});
}

template <class Kind>
HWY_INLINE const typename Kind::T* Row(const std::byte* base, std::size_t row, std::size_t e) {
  return reinterpret_cast<const typename Kind::T*>(base) + row * e;
}
template <class Kind>
HWY_INLINE typename Kind::T* Row(std::byte* base, std::size_t row, std::size_t e) {
  return reinterpret_cast<typename Kind::T*>(base) + row * e;
}

HWY_INLINE float InverseRoot(float x) { return 1.0f / std::sqrt(x); }
