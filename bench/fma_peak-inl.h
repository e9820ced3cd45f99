// The rate of fused multiply-adds in registers: what no product of this machine's f32 can exceed on one thread.
#include "dew/runtime/cpu/kernels/kernels_highway.h"  // names the instruction sets

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak-inl.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dew::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains hide the latency. Returns the operations done.
double MultiplyAdd(int rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  V x[12];
  for (auto& v : x) v = hn::Set(d, *sink);
  for (int r = 0; r < rounds; ++r) {
    for (auto& v : x) v = hn::MulAdd(v, a, b);
  }
  V sum = hn::Zero(d);
  for (auto& v : x) sum = hn::Add(sum, v);
  *sink = hn::GetLane(sum);
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * rounds;
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
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const double flops = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(500000, &sink);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::max(best, flops / took.count() * 1e-9);
    }
    return best;
  }();
  return peak;
}

}  // namespace dew::bench
#endif  // HWY_ONCE
