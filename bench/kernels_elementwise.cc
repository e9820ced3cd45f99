// Speed of the Highway kernels, each as a share of copy bandwidth: (bytes read + written) / time
// over the same for memcpy between arrays as large as the kernel's traffic. Kernel and copy are
// timed in turn, so that other load on the machine hits both, and the fastest of each counts. One
// thread; arrays beyond L2 unless the name says otherwise.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
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
  void input(Type type, Dims strides = {}) {
    add(step.inputs, std::move(type), std::move(strides));
  }
  void output(Type type) { add(step.outputs, std::move(type)); }
  void output_over(std::size_t i) { step.outputs.push_back(step.inputs[i]); }
  std::byte* memory(std::size_t buffer) { return buffers_[buffer].get(); }

  // Times the kernel and reports its share of copy bandwidth; `bytes` is what it has to read and
  // write.
  void measure(benchmark::State& state, MakeKernel make, std::int64_t bytes) {
    std::string why_not;
    const auto kernel = make(step, why_not);
    if (kernel == nullptr) return state.SkipWithError(why_not.c_str());
    const Memory shared = allocate(static_cast<std::int64_t>(kernel->shared_scratch()));
    const Memory worker = allocate(static_cast<std::int64_t>(kernel->worker_scratch()));
    std::vector<std::byte*> operands;
    for (const View& v : step.inputs)
      operands.push_back(memory(static_cast<std::size_t>(v.buffer)));
    for (const View& v : step.outputs)
      operands.push_back(memory(static_cast<std::size_t>(v.buffer)));
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
      for (int piece = 0; piece < kernel.phases()[phase]; ++piece)
        kernel.run(args, static_cast<int>(phase), piece);
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
#define DEW_BENCH_OP(name) BENCHMARK_CAPTURE(OneOp, name, &name##_op, DType::f32)->UseManualTime()
DEW_BENCH_OP(neg);
DEW_BENCH_OP(exp);
DEW_BENCH_OP(log);
DEW_BENCH_OP(tanh);
DEW_BENCH_OP(erf);
DEW_BENCH_OP(silu);
DEW_BENCH_OP(silu_slope);
DEW_BENCH_OP(gelu_tanh);
DEW_BENCH_OP(gelu_tanh_slope);
DEW_BENCH_OP(gelu_erf);
DEW_BENCH_OP(gelu_erf_slope);
DEW_BENCH_OP(sin);
DEW_BENCH_OP(rsqrt);

void Swiglu(benchmark::State& state, DType dtype) {
  Group g({kLarge});
  const int a = g.in(dtype), b = g.in(dtype);
  g.out(g.op(mul_op, {g.op(silu_op, {a}), b}), dtype);
  g.measure(state, make_fused, 3 * kLarge * byte_size(dtype));
}
BENCHMARK_CAPTURE(Swiglu, f32, DType::f32)->UseManualTime();
BENCHMARK_CAPTURE(Swiglu, bf16, DType::bf16)->UseManualTime();

void Add(benchmark::State& state, DType dtype) {
  Group g({kLarge});
  const int a = g.in(dtype), b = g.in(dtype);
  g.out(g.op(add_op, {a, b}), dtype);
  g.measure(state, make_fused, 3 * kLarge * byte_size(dtype));
}
BENCHMARK_CAPTURE(Add, f32, DType::f32)->UseManualTime();
BENCHMARK_CAPTURE(Add, bf16, DType::bf16)->UseManualTime();

// The cast of parameters.
void Cast(benchmark::State& state, DType from, DType to) {
  Group g({kLarge});
  const int x = g.in(from);
  g.step.group.ops.push_back(MicroOp{&convert_op, ConvertTo{to}, {x}, to});
  g.out(1, to);
  g.measure(state, make_fused, kLarge * (byte_size(from) + byte_size(to)));
}
BENCHMARK_CAPTURE(Cast, f32_bf16, DType::f32, DType::bf16)->UseManualTime();
BENCHMARK_CAPTURE(Cast, bf16_f32, DType::bf16, DType::f32)->UseManualTime();

// x * row vector + scalar of the row.
void RowBroadcast(benchmark::State& state) {
  const std::int64_t e = state.range(0), rows = kLarge / e;
  Group g({rows, e});
  const int x = g.in(DType::f32), v = g.in(DType::f32, {0, 1}), s = g.in(DType::f32, {1, 0});
  g.out(g.op(add_op, {g.op(mul_op, {x, v}), s}), DType::f32);
  g.measure(state, make_fused, 2 * kLarge * 4);
}
BENCHMARK(RowBroadcast)->Arg(16)->Arg(64)->Arg(768)->Arg(3072)->UseManualTime();

// ---- norms, rope ----
const Type kScalar{DType::f32, {}};

void norm(benchmark::State& state, const OpDef* op, MakeKernel make, bool layer, bool grad,
          DType dtype) {
  const std::int64_t e = state.range(0), rows = kLarge / e, size = byte_size(dtype);
  Subject s;
  const Type x{dtype, {rows, e}}, vector{DType::f32, {e}}, statistic{DType::f32, {rows}};
  s.step.op = op;
  if (!grad) s.step.attrs = Number{1e-5};
  s.input(x);
  s.input(vector);
  if (layer && !grad) s.input(vector);
  if (grad) {
    if (layer) s.input(statistic);
    s.input(statistic);
    s.input(x);
  }
  s.output(x);
  for (int k = 0; k < (layer ? 2 : 1); ++k) s.output(grad ? vector : statistic);
  s.measure(state, make, (grad ? 3 : 2) * kLarge * size + rows * 4);
}
#define DEW_BENCH_NORM(op, layer, grad, dtype)                                          \
  BENCHMARK_CAPTURE(norm, op##_##dtype, &op##_op, make_##op, layer, grad, DType::dtype) \
      ->Arg(64)                                                                         \
      ->Arg(768)                                                                        \
      ->UseManualTime()
DEW_BENCH_NORM(rms_norm, false, false, f32);
DEW_BENCH_NORM(rms_norm, false, false, bf16);
DEW_BENCH_NORM(rms_norm_grad, false, true, f32);
DEW_BENCH_NORM(rms_norm_grad, false, true, bf16);
DEW_BENCH_NORM(layer_norm, true, false, f32);
DEW_BENCH_NORM(layer_norm, true, false, bf16);
DEW_BENCH_NORM(layer_norm_grad, true, true, f32);
DEW_BENCH_NORM(layer_norm_grad, true, true, bf16);

void Rope(benchmark::State& state, DType dtype, std::int64_t heads) {
  Subject s;
  const std::int64_t d = 64, tokens = kLarge / (heads * d);
  s.step.op = &rope_op;
  s.step.attrs = RopeDims{};
  s.input(Type{dtype, {1, tokens, heads, d}});
  s.input(Type{DType::i32, {1, tokens}});
  s.input(kScalar);
  *reinterpret_cast<float*>(s.memory(2)) = 10000;
  for (std::int64_t i = 0; i < tokens; ++i)
    reinterpret_cast<std::int32_t*>(s.memory(1))[i] = static_cast<std::int32_t>(i % 1024);
  s.output(Type{dtype, {1, tokens, heads, d}});
  s.measure(state, make_rope, 2 * kLarge * byte_size(dtype));
}
BENCHMARK_CAPTURE(Rope, f32_12_heads, DType::f32, 12)->UseManualTime();
BENCHMARK_CAPTURE(Rope, f32_2_heads, DType::f32, 2)->UseManualTime();
BENCHMARK_CAPTURE(Rope, bf16_12_heads, DType::bf16, 12)->UseManualTime();

// ---- optimizers ----
void Optimizer(benchmark::State& state, const OpDef* op, MakeKernel make, std::size_t states,
               int scalars) {
  Subject s;
  s.step.op = op;
  s.step.attrs = UpdateAttrs{0.9, 0.95, 1e-8, 0.1, 0.9};
  const Type type{DType::f32, {kLarge / 2}};
  for (std::size_t k = 0; k <= states; ++k) s.input(type);
  for (int k = 0; k < scalars; ++k) s.input(kScalar);
  s.input(Type{DType::pred, {}});
  *s.memory(states + 1 + static_cast<std::size_t>(scalars)) = std::byte{1};
  for (std::size_t k = 0; k < states; ++k) s.output_over(k);
  s.measure(state, make, static_cast<std::int64_t>(2 * states + 1) * kLarge / 2 * 4);
}
BENCHMARK_CAPTURE(Optimizer, adamw, &adamw_op, make_adamw, 3, 4)->UseManualTime();
BENCHMARK_CAPTURE(Optimizer, lion, &lion_op, make_lion, 2, 2)->UseManualTime();
BENCHMARK_CAPTURE(Optimizer, sgd, &sgd_op, make_sgd, 2, 2)->UseManualTime();

void SumSquares(benchmark::State& state) {
  Subject s;
  s.step.op = &sum_squares_op;
  s.input(Type{DType::f32, {kLarge}});
  s.output(kScalar);
  s.measure(state, make_sum_squares, kLarge * 4);
}
BENCHMARK(SumSquares)->UseManualTime();

// ---- rows by number: a table [50304, 768], 1024 tokens ----
void spread_ids(std::byte* to, std::int64_t n, std::int64_t v) {
  for (std::int64_t i = 0; i < n; ++i)
    reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(i * 7919 % v);
}

void Gather(benchmark::State& state) {
  const std::int64_t v = 50304, e = 768, n = 1024;
  Subject s;
  s.step.op = &gather_rows_op;
  s.input(Type{DType::f32, {v, e}});
  s.input(Type{DType::i32, {n}});
  spread_ids(s.memory(1), n, v);
  s.output(Type{DType::f32, {n, e}});
  s.measure(state, make_gather_rows, 2 * n * e * 4);
}
BENCHMARK(Gather)->UseManualTime();

void ScatterAdd(benchmark::State& state, DType dtype) {
  const std::int64_t v = 50304, e = 768, n = 1024;
  Subject s;
  s.step.op = &scatter_add_rows_op;
  s.input(Type{DType::f32, {v, e}});
  s.input(Type{DType::i32, {n}});
  spread_ids(s.memory(1), n, v);
  s.input(Type{dtype, {n, e}});
  s.output_over(0);
  s.measure(state, make_scatter_add_rows, n * e * (8 + byte_size(dtype)));
}
BENCHMARK_CAPTURE(ScatterAdd, f32, DType::f32)->UseManualTime();
BENCHMARK_CAPTURE(ScatterAdd, bf16, DType::bf16)->UseManualTime();

// ---- reductions, copies, dropout ----
void Reduce(benchmark::State& state, Dims shape, Dims dims, Dims result, DType dtype) {
  Subject s;
  s.step.op = &reduce_sum_op;
  s.step.attrs = Axes{std::move(dims)};
  const std::int64_t bytes = element_count(shape) * byte_size(dtype);
  s.input(Type{dtype, std::move(shape)});
  s.output(Type{dtype, std::move(result)});
  s.measure(state, make_reduce, bytes);
}
BENCHMARK_CAPTURE(Reduce, bias_f32, Dims{8, 1024, 768}, Dims{0, 1}, Dims{768}, DType::f32)
    ->UseManualTime();
BENCHMARK_CAPTURE(Reduce, bias_bf16, Dims{8, 1024, 768}, Dims{0, 1}, Dims{768}, DType::bf16)
    ->UseManualTime();
BENCHMARK_CAPTURE(Reduce, heads_f32, Dims{8, 1024, 12, 64}, Dims{3}, Dims{8, 1024, 12}, DType::f32)
    ->UseManualTime();
BENCHMARK_CAPTURE(Reduce, all_f32, Dims{8, 1024, 768}, Dims{0, 1, 2}, Dims{}, DType::f32)
    ->UseManualTime();

void Transpose(benchmark::State& state, DType dtype) {
  Subject s;
  s.input(Type{dtype, {2048, 3072}}, {1, 2048});
  s.output(Type{dtype, {2048, 3072}});
  s.measure(state, make_copy, 2 * 2048 * 3072 * byte_size(dtype));
}
BENCHMARK_CAPTURE(Transpose, f32, DType::f32)->UseManualTime();
BENCHMARK_CAPTURE(Transpose, bf16, DType::bf16)->UseManualTime();

// [b, t, h, d] to [b, h, t, d].
void SwapHeads(benchmark::State& state) {
  Subject s;
  s.input(Type{DType::f32, {8, 12, 1024, 64}}, {1024 * 768, 64, 768, 1});
  s.output(Type{DType::f32, {8, 12, 1024, 64}});
  s.measure(state, make_copy, 2 * 8 * 12 * 1024 * 64 * 4);
}
BENCHMARK(SwapHeads)->UseManualTime();

void Dropout(benchmark::State& state) {
  Subject s;
  s.step.op = &dropout_op;
  s.step.attrs = RandomAttrs{1, 0.1, {}};
  const Type x{DType::f32, {8, 1024, 768}};
  s.input(x);
  s.input(Type{DType::u32, {2}});
  for (int k = 0; k < 2; ++k) s.input(Type{DType::i32, {}});
  s.input(Type{DType::i32, {8}});
  s.input(Type{DType::i32, {1024}});
  s.output(x);
  s.measure(state, make_dropout, 2 * x.bytes());
}
BENCHMARK(Dropout)->UseManualTime();

}  // namespace
}  // namespace dew::cpu
