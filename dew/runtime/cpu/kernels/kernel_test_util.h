// Runs one kernel on small arrays, for tests: exact allocations (so that sanitizers see what
// reaches outside), scratch full of garbage, pieces in any order, on every instruction set of this
// machine.
#pragma once

#include "dew/runtime/cpu/kernels/kernels_highway.h"  // before Highway

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace dew::cpu {

// A block of exactly so many bytes, aligned to 64.
class TestMemory {
 public:
  explicit TestMemory(std::size_t bytes, int fill = 0xff) : bytes_(bytes) {
    void* p = nullptr;
    if (posix_memalign(&p, 64, std::max<std::size_t>(1, bytes)) != 0) std::abort();
    memory_.reset(static_cast<std::byte*>(p), [](std::byte* q) { std::free(q); });
    std::memset(p, fill, bytes);
  }
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }
  std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_;
};

inline double read_element(DType dtype, const std::byte* base, std::int64_t i) {
  const auto at = [&](auto value) {
    std::memcpy(&value, base + static_cast<std::size_t>(i) * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(at(float{}));
    case DType::bf16:
      return static_cast<double>(static_cast<float>(at(bf16{})));
    case DType::i32:
      return at(std::int32_t{});
    case DType::u32:
      return at(std::uint32_t{});
    case DType::pred:
      return at(std::uint8_t{});
    case DType::f64:
      return at(double{});
  }
  return 0;
}

inline void write_element(DType dtype, std::byte* base, std::int64_t i, double x) {
  const auto put = [&](auto value) {
    std::memcpy(base + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
  };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(x));
    case DType::bf16:
      return put(bf16(static_cast<float>(x)));
    case DType::i32:
      return put(static_cast<std::int32_t>(x));
    case DType::u32:
      return put(static_cast<std::uint32_t>(x));
    case DType::pred:
      return put(static_cast<std::uint8_t>(x != 0));
    case DType::f64:
      return put(x);
  }
}

// A step under test, with memory for its buffers.
struct KernelTest {
  Step step;
  std::vector<TestMemory> buffers;

  // A new buffer of so many elements; elements not given are garbage.
  int buffer(DType dtype, std::int64_t elements, const std::vector<double>& data = {}) {
    buffers.emplace_back(static_cast<std::size_t>(elements * byte_size(dtype)));
    for (std::size_t i = 0; i < data.size(); ++i) {
      write_element(dtype, buffers.back().data(), static_cast<std::int64_t>(i), data[i]);
    }
    return static_cast<int>(buffers.size()) - 1;
  }

  View view(int buffer, Type type, Dims strides = {}, std::int64_t offset = 0) const {
    View v;
    v.buffer = buffer;
    v.strides = strides.empty() ? row_major_strides(type.shape) : std::move(strides);
    v.type = std::move(type);
    v.offset = offset;
    return v;
  }

  // A dense operand of its own.
  void input(Type type, const std::vector<double>& data) {
    step.inputs.push_back(view(buffer(type.dtype, type.elements(), data), type));
  }
  void output(Type type) {
    step.outputs.push_back(view(buffer(type.dtype, type.elements()), type));
  }
  // An output in the place of input i.
  void output_over(std::size_t i) { step.outputs.push_back(step.inputs[i]); }
  // The same, as a buffer of another number: input and output of a program that are one array of
  // the caller.
  void output_donated(std::size_t i) {
    View v = step.inputs[i];
    buffers.push_back(TestMemory(buffers[static_cast<std::size_t>(v.buffer)]));
    v.buffer = static_cast<int>(buffers.size()) - 1;
    step.outputs.push_back(v);
  }

  static double element(const View& v, const std::byte* base, const Dims& index) {
    std::int64_t at = v.offset;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
    return read_element(v.type.dtype, base, at);
  }

  // All elements of a view, in row-major order.
  std::vector<double> values(const View& v) const {
    std::vector<double> out;
    const std::byte* base = buffers[static_cast<std::size_t>(v.buffer)].data();
    for_each_index(v.type.shape,
                   [&](const Dims& index) { out.push_back(element(v, base, index)); });
    return out;
  }
  std::vector<double> result(std::size_t i = 0) const { return values(step.outputs[i]); }
  std::vector<double> operand(std::size_t i) const { return values(step.inputs[i]); }

  // Runs the kernel; pieces in order for seed 0, else shuffled. False if the step is refused.
  bool run(MakeKernel make, unsigned seed = 0) {
    std::string why_not;
    const std::unique_ptr<Kernel> kernel = make(step, why_not);
    if (kernel == nullptr) {
      ADD_FAILURE() << "refused: " << why_not;
      return false;
    }
    std::vector<std::byte*> operands;
    for (const auto* views : {&step.inputs, &step.outputs}) {
      for (const View& v : *views) {
        operands.push_back(buffers[static_cast<std::size_t>(v.buffer)].data() +
                           v.offset * byte_size(v.type.dtype));
      }
    }
    const TestMemory shared(kernel->shared_scratch());
    const TestMemory workers[2] = {TestMemory(kernel->worker_scratch()),
                                   TestMemory(kernel->worker_scratch())};
    std::mt19937 random(seed);
    for (std::size_t phase = 0; phase < kernel->phases().size(); ++phase) {
      std::vector<int> pieces;
      for (int i = 0; i < kernel->phases()[phase]; ++i) pieces.push_back(i);
      if (seed != 0) std::shuffle(pieces.begin(), pieces.end(), random);
      for (int piece : pieces) {
        KernelArgs args;
        args.operands = operands.data();
        args.shared = shared.data();
        args.worker = workers[random() % 2].data();
        kernel->run(args, static_cast<int>(phase), piece);
      }
    }
    return true;
  }
};

// Calls test() for every instruction set that is compiled and that this machine has.
template <class Test>
void for_each_target(Test test) {
  for (const std::int64_t target :
       {std::int64_t{HWY_AVX2}, std::int64_t{HWY_AVX3}, std::int64_t{HWY_NEON}}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline std::vector<double> random_values(std::int64_t n, unsigned seed, double low = -2,
                                         double high = 2) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> out(static_cast<std::size_t>(n));
  for (double& x : out) x = static_cast<double>(static_cast<float>(draw(random)));
  return out;
}

// Values as an array of that type holds them.
inline std::vector<double> stored(DType dtype, std::vector<double> values) {
  std::byte place[8];
  for (double& x : values) {
    write_element(dtype, place, 0, x);
    x = read_element(dtype, place, 0);
  }
  return values;
}

// |got - want| <= absolute + relative |want|; NaN equals NaN, infinities must agree.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                         double relative, double absolute, const std::string& what = {}) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    ASSERT_LE(std::fabs(got[i] - want[i]), absolute + relative * std::fabs(want[i]))
        << what << " element " << i << ": got " << got[i] << ", want " << want[i];
  }
}

// Relative tolerance: a unit in the last place of bf16, a few of f32.
inline double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : 0x1p-22; }

}  // namespace dew::cpu
