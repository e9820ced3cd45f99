// Kernels made of matrix products, on one thread: GFLOP/s, and the part of the multiply-add peak of f32 (bf16 may exceed 1).
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/fma_peak-inl.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew::bench {
namespace {

using cpu::Kernel;

// A step over dense arrays, its kernel, and memory.
class Bench {
 public:
  Step step;

  void input(DType dtype, Dims shape) { add(step.inputs, dtype, std::move(shape)); }
  void output(DType dtype, Dims shape) { add(step.outputs, dtype, std::move(shape)); }
  template <class T>
  T* data(std::size_t operand) {
    return reinterpret_cast<T*>(address(memory_[operand]));
  }
  void make(cpu::MakeKernel make_kernel) {
    std::string why_not;
    kernel_ = make_kernel(step, why_not);
    if (kernel_ == nullptr) throw std::runtime_error(why_not);
    for (auto& m : memory_) operands_.push_back(address(m));
    shared_.resize(kernel_->shared_scratch() + 64);
    worker_.resize(kernel_->worker_scratch() + 64);
  }
  void run() {
    const cpu::KernelArgs args{operands_.data(), address(shared_), address(worker_)};
    for (std::size_t phase = 0; phase < kernel_->phases().size(); ++phase) {
      for (int p = 0; p < kernel_->phases()[phase]; ++p) kernel_->run(args, static_cast<int>(phase), p);
    }
  }
  const Kernel& kernel() const { return *kernel_; }

 private:
  static std::byte* address(std::vector<std::byte>& v) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) / 64 * 64);
  }
  void add(std::vector<View>& views, DType dtype, Dims shape) {
    View v;
    v.buffer = static_cast<int>(memory_.size());
    v.strides = row_major_strides(shape);
    v.type = {dtype, std::move(shape)};
    memory_.emplace_back(static_cast<std::size_t>(v.type.bytes()) + 64);
    if (is_float(dtype)) randomize(v.type, address(memory_.back()));
    views.push_back(std::move(v));
  }
  static void randomize(const Type& type, std::byte* to) {
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < type.elements(); ++i) {
      const float x = uniform(rng);
      const bf16 y(x);
      type.dtype == DType::f32 ? std::memcpy(to + i * 4, &x, 4) : std::memcpy(to + i * 2, &y, 2);
    }
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> operands_;
  std::vector<std::byte> shared_, worker_;
  std::unique_ptr<Kernel> kernel_;
};

void report(benchmark::State& state, double flops) {
  const double total = flops * static_cast<double>(state.iterations()) * 1e-9;
  state.counters["GFLOP/s"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(total / fma_peak(), benchmark::Counter::kIsRate);
}

DType dtype_of(bool bf16) { return bf16 ? DType::bf16 : DType::f32; }

enum Form { nn, nt, tn };  // which operand is transposed

void dot_case(benchmark::State& state, Form form, std::int64_t m, std::int64_t n, std::int64_t k, bool bf16) {
  Bench b;
  const DType dtype = dtype_of(bf16);
  b.step.attrs = DotDims{{}, {}, {form == tn ? 0 : 1}, {form == nt ? 1 : 0}, form == tn ? DType::f32 : dtype};
  b.input(dtype, form == tn ? Dims{k, m} : Dims{m, k});
  b.input(dtype, form == nt ? Dims{n, k} : Dims{k, n});
  b.output(form == tn ? DType::f32 : dtype, {m, n});
  b.make(cpu::make_dot);
  for (auto _ : state) b.run();
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  report(state, flops);
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(n * k * byte_size(dtype)) * 1e-9 * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
  state.SetLabel(b.kernel().implementation() + ", " + std::to_string(b.kernel().phases()[0]) + " pieces");
}

struct DotCase {
  const char* name;
  Form form;
  std::int64_t m, n, k;
};

constexpr DotCase kDots[] = {
    {"gpt2 x w", nn, 1024, 768, 768},       {"gpt2 x w", nn, 1024, 2304, 768},    {"gpt2 x w", nn, 1024, 3072, 768},
    {"gpt2 x w", nn, 1024, 768, 3072},      {"gpt2 dx", nt, 1024, 768, 768},      {"gpt2 dx", nt, 1024, 768, 2304},
    {"gpt2 dx", nt, 1024, 768, 3072},       {"gpt2 dx", nt, 1024, 3072, 768},     {"gpt2 dw", tn, 768, 768, 1024},
    {"gpt2 dw", tn, 768, 2304, 1024},       {"gpt2 dw", tn, 768, 3072, 1024},     {"gpt2 dw", tn, 3072, 768, 1024},
    {"gpt2 head", nt, 64, 50304, 768},      {"notebook x w", nn, 512, 64, 64},    {"notebook x w", nn, 512, 256, 64},
    {"notebook x w", nn, 512, 64, 256},     {"notebook dx", nt, 512, 64, 64},     {"notebook dx", nt, 512, 64, 256},
    {"notebook dw", tn, 64, 64, 512},       {"notebook dw", tn, 64, 256, 512},    {"demo x w", nn, 2048, 192, 192},
    {"demo x w", nn, 2048, 768, 192},       {"demo dx", nt, 2048, 192, 768},      {"demo dw", tn, 192, 768, 2048},
    {"decode x w", nn, 1, 3072, 768},       {"decode x w", nn, 4, 3072, 768},     {"decode head", nt, 1, 50304, 768},
    {"decode head", nt, 4, 50304, 768},     {"decode x w", nn, 16, 3072, 768},
};

void add_dots() {
  for (const bool bf16 : {false, true}) {
    for (const DotCase& c : kDots) {
      const std::string name = std::string("dot/") + (bf16 ? "bf16/" : "f32/") + c.name + "/" + std::to_string(c.m) + "x" +
                               std::to_string(c.n) + "x" + std::to_string(c.k);
      benchmark::RegisterBenchmark(name.c_str(), [c, bf16](benchmark::State& s) {
        dot_case(s, c.form, c.m, c.n, c.k, bf16);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

const int kRegistered = [] {
  cpu::onednn_thread_init();
  add_dots();
  return 0;
}();

}  // namespace
}  // namespace dew::bench
