// Speed of the Highway kernels, each as a share of copy bandwidth: (bytes read + written) / time over the same for memcpy
// between arrays as large as the kernel's traffic. Kernel and copy are timed in turn, so that other load on the machine hits
// both, and the fastest of each counts. One thread; arrays beyond L2 unless the name says otherwise.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

Memory allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>((bytes + 4095) / 4096 * 4096 + 4096);
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(4096, size)));
  std::memset(memory.get(), 0, size);
  return memory;
}

// Of this thread's processor time, so that a busy machine shows less.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double seconds_of(auto&& run) {
  const double start = now();
  run();
  return now() - start;
}

// One step with its memory.
class Subject {
 public:
  Step step;

  std::size_t add(std::vector<View>& views, Type type, Dims strides = {}) {
    View v;
    v.buffer = static_cast<int>(buffers_.size());
    v.strides = strides.empty() ? row_major_strides(type.shape) : std::move(strides);
    v.type = std::move(type);
    std::int64_t last = 0;
    for (std::size_t d = 0; d < v.strides.size(); ++d) last += (v.type.shape[d] - 1) * v.strides[d];
    buffers_.push_back(allocate((last + 1) * byte_size(v.type.dtype)));
    fill(v, last + 1);
    views.push_back(std::move(v));
    return buffers_.size() - 1;
  }
  void input(Type type, Dims strides = {}) { add(step.inputs, std::move(type), std::move(strides)); }
  void output(Type type) { add(step.outputs, std::move(type)); }
  void output_over(std::size_t i) { step.outputs.push_back(step.inputs[i]); }
  std::byte* memory(std::size_t buffer) { return buffers_[buffer].get(); }

  // Times the kernel and reports its share of copy bandwidth; `bytes` is what it has to read and write.
  void measure(benchmark::State& state, MakeKernel make, std::int64_t bytes) {
    std::string why_not;
    const auto kernel = make(step, why_not);
    if (kernel == nullptr) return state.SkipWithError(why_not.c_str());
    const Memory shared = allocate(static_cast<std::int64_t>(kernel->shared_scratch()));
    const Memory worker = allocate(static_cast<std::int64_t>(kernel->worker_scratch()));
    std::vector<std::byte*> operands;
    for (const View& v : step.inputs) operands.push_back(memory(static_cast<std::size_t>(v.buffer)));
    for (const View& v : step.outputs) operands.push_back(memory(static_cast<std::size_t>(v.buffer)));
    const KernelArgs args{operands.data(), shared.get(), worker.get()};

    const auto half = static_cast<std::size_t>(bytes / 2);
    const Memory from = allocate(bytes / 2), to = allocate(bytes / 2);
    double best = 1e9, best_copy = 1e9;
    for (auto _ : state) {
      const double t = seconds_of([&] { run(*kernel, args); });
      best_copy = std::min(best_copy, seconds_of([&] { std::memcpy(to.get(), from.get(), half); }));
      best = std::min(best, t);
      state.SetIterationTime(t);
    }
    state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
    state.counters["of_copy"] = best_copy / best;
    state.counters["best_us"] = best * 1e6;
  }

 private:
  static void run(const Kernel& kernel, const KernelArgs& args) {
    for (std::size_t phase = 0; phase < kernel.phases().size(); ++phase) {
      for (int piece = 0; piece < kernel.phases()[phase]; ++piece) kernel.run(args, static_cast<int>(phase), piece);
    }
  }

  void fill(const View& v, std::int64_t n) {
    std::byte* base = buffers_.back().get();
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = static_cast<float>(i % 251) * 0.01f - 1.2f;
      if (v.type.dtype == DType::f32) reinterpret_cast<float*>(base)[i] = x;
      if (v.type.dtype == DType::bf16) reinterpret_cast<bf16*>(base)[i] = bf16(x);
    }
  }

  std::vector<Memory> buffers_;
};

constexpr std::int64_t kLarge = 8 << 20;  // elements: beyond every cache

// ---- fused groups ----

struct Group : Subject {
  Dims shape;
  explicit Group(Dims s) : shape(std::move(s)) { step.group.shape = shape; }
  int in(DType dtype, Dims strides = {}) {
    input(Type{dtype, shape}, std::move(strides));
    step.group.inputs.push_back(dtype);
    return static_cast<int>(step.group.inputs.size()) - 1;
  }
  int op(const OpDef& row, std::vector<int> registers, DType dtype = DType::f32) {
    step.group.ops.push_back(MicroOp{&row, NoAttrs{}, std::move(registers), dtype});
    return static_cast<int>(step.group.inputs.size() + step.group.ops.size()) - 1;
  }
  void out(int reg, DType dtype) {
    output(Type{dtype, shape});
    step.group.outputs.push_back(reg);
  }
};

// x -> 8 arithmetic ops -> y.
void chain8(benchmark::State& state, DType dtype, std::int64_t n) {
  Group g({n});
  const int x = g.in(dtype);
  int y = g.op(mul_op, {x, x});
  y = g.op(add_op, {y, x});
  y = g.op(max_op, {y, x});
  y = g.op(mul_op, {y, y});
  y = g.op(sub_op, {y, x});
  y = g.op(abs_op, {y});
  y = g.op(add_op, {y, x});
  g.out(g.op(neg_op, {y}), dtype);
  g.measure(state, make_fused, 2 * n * byte_size(dtype));
}
void Chain8(benchmark::State& state) { chain8(state, DType::f32, state.range(0)); }
void Chain8Bf16(benchmark::State& state) { chain8(state, DType::bf16, state.range(0)); }
BENCHMARK(Chain8)->Arg(kLarge)->Arg(1 << 20)->UseManualTime();
BENCHMARK(Chain8Bf16)->Arg(kLarge)->UseManualTime();

// 8 ops on 4 inputs, one of them tanh.
void Chain8FourInputs(benchmark::State& state) {
  Group g({kLarge});
  const int a = g.in(DType::f32), b = g.in(DType::f32), c = g.in(DType::f32), d = g.in(DType::f32);
  int y = g.op(mul_op, {a, b});
  y = g.op(add_op, {y, c});
  y = g.op(tanh_op, {y});
  y = g.op(mul_op, {y, d});
  y = g.op(sub_op, {y, a});
  y = g.op(max_op, {y, b});
  y = g.op(add_op, {y, c});
  g.out(g.op(mul_op, {y, d}), DType::f32);
  g.measure(state, make_fused, 5 * kLarge * 4);
}
BENCHMARK(Chain8FourInputs)->UseManualTime();

void OneOp(benchmark::State& state, const OpDef* op, DType dtype) {
  Group g({kLarge});
  const int x = g.in(dtype);
  g.out(g.op(*op, {x}), dtype);
  g.measure(state, make_fused, 2 * kLarge * byte_size(dtype));
}
#define DEW_BENCH_OP(name) BENCHMARK_CAPTURE(OneOp, name, &name##_op, DType::f32)->UseManualTime();
DEW_BENCH_OP(neg) DEW_BENCH_OP(exp) DEW_BENCH_OP(log) DEW_BENCH_OP(tanh) DEW_BENCH_OP(erf) DEW_BENCH_OP(silu)
DEW_BENCH_OP(silu_slope) DEW_BENCH_OP(gelu_tanh) DEW_BENCH_OP(gelu_tanh_slope) DEW_BENCH_OP(gelu_erf)
DEW_BENCH_OP(gelu_erf_slope) DEW_BENCH_OP(sin) DEW_BENCH_OP(rsqrt)

void Swiglu(benchmark::State& state, DType dtype) {
  Group g({kLarge});
  const int a = g.in(dtype), b = g.in(dtype);
  g.out(g.op(mul_op, {g.op(silu_op, {a}), b}), dtype);
  g.measure(state, make_fused, 3 * kLarge * byte_size(dtype));
}
BENCHMARK_CAPTURE(Swiglu, f32, DType::f32)->UseManualTime();
BENCHMARK_CAPTURE(Swiglu, bf16, DType::bf16)->UseManualTime();

// x * row vector + scalar of the row.
void RowBroadcast(benchmark::State& state) {
  const std::int64_t e = state.range(0), rows = kLarge / e;
  Group g({rows, e});
  const int x = g.in(DType::f32), v = g.in(DType::f32, {0, 1}), s = g.in(DType::f32, {1, 0});
  g.out(g.op(add_op, {g.op(mul_op, {x, v}), s}), DType::f32);
  g.measure(state, make_fused, 2 * kLarge * 4);
}
BENCHMARK(RowBroadcast)->Arg(16)->Arg(64)->Arg(768)->Arg(3072)->UseManualTime();

}  // namespace
}  // namespace dew::cpu
