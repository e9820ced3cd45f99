// What tests of kernels share: strided arrays of random numbers, steps over them, and a runner that
// executes pieces in any order, with scratch full of NaN.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "dew/runtime/cpu/kernel.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew::cpu {

// An array in a buffer of its own. Elements outside the view hold a pattern that no kernel may
// change.
struct TestArray {
  View view;
  std::vector<std::byte> bytes;

  // `order`: dimensions from the outermost in memory to the innermost; `gap`: elements left free
  // behind each row.
  TestArray(DType dtype, Dims shape, Dims order = {}, std::int64_t gap = 0) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    if (order.empty()) {
      for (std::int64_t d = 0; d < rank; ++d) order.push_back(d);
    }
    view.type = {dtype, shape};
    view.strides.assign(shape.size(), 0);
    std::int64_t stride = 1;
    for (std::int64_t i = rank - 1; i >= 0; --i) {
      const auto d = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      view.strides[d] = stride;
      stride = stride * shape[d] + (i == rank - 1 ? gap : 0);
    }
    bytes.assign(static_cast<std::size_t>(std::max<std::int64_t>(stride, 1) * byte_size(dtype)),
                 std::byte{0x7b});
  }

  std::byte* address(const Dims& index) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
    return bytes.data() + offset * byte_size(view.type.dtype);
  }
  double get(const Dims& index) {
    switch (view.type.dtype) {
      case DType::f32:
        return *reinterpret_cast<float*>(address(index));
      case DType::bf16:
        return static_cast<float>(*reinterpret_cast<bf16*>(address(index)));
      default:
        return *reinterpret_cast<std::int32_t*>(address(index));
    }
  }
  void set(const Dims& index, double value) {
    switch (view.type.dtype) {
      case DType::f32:
        *reinterpret_cast<float*>(address(index)) = static_cast<float>(value);
        break;
      case DType::bf16:
        *reinterpret_cast<bf16*>(address(index)) = bf16(static_cast<float>(value));
        break;
      default:
        *reinterpret_cast<std::int32_t*>(address(index)) = static_cast<std::int32_t>(value);
    }
  }
  template <class Next>
  void fill(Next next) {
    for_each_index(view.type.shape, [&](const Dims& index) { set(index, next()); });
  }
  void fill_random(std::mt19937& rng, double size = 1) {
    std::uniform_real_distribution<double> uniform(-size, size);
    fill([&] { return uniform(rng); });
  }
  std::vector<double> values() {
    std::vector<double> all;
    for_each_index(view.type.shape, [&](const Dims& index) { all.push_back(get(index)); });
    return all;
  }
};

enum class Order { forward, backward, threads };

// Runs every piece of every phase; `threads`: by four threads, whoever comes first.
inline void run_kernel(const Kernel& kernel, const std::vector<std::byte*>& operands, Order order) {
  const auto scratch = [](std::size_t bytes) {
    return std::vector<float>(bytes / 4 + 32, std::nanf(""));
  };
  const auto aligned = [](std::vector<float>& v) {
    const auto address = reinterpret_cast<std::uintptr_t>(v.data());
    return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  };
  std::vector<float> shared = scratch(kernel.shared_scratch());
  constexpr std::size_t kThreads = 4;
  std::vector<std::vector<float>> worker(kThreads, scratch(kernel.worker_scratch()));
  for (std::size_t phase = 0; phase < kernel.phases().size(); ++phase) {
    const int pieces = kernel.phases()[phase];
    const auto run = [&](std::size_t w, int piece) {
      kernel.run({operands.data(), aligned(shared), aligned(worker[w])}, static_cast<int>(phase),
                 piece);
    };
    if (order == Order::threads) {
      std::atomic<int> next = 0;
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < kThreads; ++w) {
        threads.emplace_back([&, w] {
          onednn_thread_init();
          for (int p = next++; p < pieces; p = next++) run(w, p);
        });
      }
    } else {
      for (int p = 0; p < pieces; ++p) run(0, order == Order::forward ? p : pieces - 1 - p);
    }
  }
}

// Numbers agree within `relative` of the largest expected one, which counts as at least `floor`;
// infinities exactly.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                         double relative, const std::string& what, double floor = 0.1) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double size = floor;
  for (const double x : expected) size = std::isfinite(x) ? std::max(size, std::abs(x)) : size;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i])) {
      ASSERT_EQ(got[i], expected[i]) << what << ", element " << i;
    } else {
      ASSERT_NEAR(got[i], expected[i], relative * size) << what << ", element " << i;
    }
  }
}

}  // namespace dew::cpu
