// The rate of fused multiply-adds in registers: what no product of this machine's f32 can exceed on
// one thread.
#include "dew/runtime/cpu/kernels/kernels_highway.h"  // names the instruction sets

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak-inl.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dew::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten independent chains hide the latency. Returns the operations done.
double MultiplyAdd(int rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  auto x0 = hn::Set(d, *sink), x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0, x7 = x0,
       x8 = x0, x9 = x0;
  for (int r = 0; r < rounds; ++r) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b),
    x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b), x6 = hn::MulAdd(x6, a, b),
    x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b), x9 = hn::MulAdd(x9, a, b);
    // Equal chains must not become one.
    asm volatile("" : "+x"(x0.raw), "+x"(x1.raw), "+x"(x2.raw), "+x"(x3.raw), "+x"(x4.raw));
    asm volatile("" : "+x"(x5.raw), "+x"(x6.raw), "+x"(x7.raw), "+x"(x8.raw), "+x"(x9.raw));
  }
  const auto low = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), x4);
  const auto high = hn::Add(hn::Add(hn::Add(x5, x6), hn::Add(x7, x8)), x9);
  *sink = hn::GetLane(hn::Add(low, high));
  return 2.0 * 10.0 * static_cast<double>(hn::Lanes(d)) * rounds;
}

}  // namespace dew::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <chrono>

namespace dew::bench {

HWY_EXPORT(MultiplyAdd);

// GFLOP/s.
inline double fma_peak() {
  static const double peak = [] {
    double best = 0;
    float sink = 0.5f;
    for (int i = 0; i < 200; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const double flops = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(50000, &sink);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::max(best, flops / took.count() * 1e-9);
    }
    return best;
  }();
  return peak;
}

}  // namespace dew::bench
#endif  // HWY_ONCE
