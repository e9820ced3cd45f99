// Kernels made of matrix products, on one thread: GFLOP/s, and the part of the multiply-add peak of
// f32 (bf16 may exceed 1).
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/fma_peak-inl.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/attention.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew::bench {
namespace {

using cpu::Kernel;

// Memory as the runtime has it: large pages.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_((bytes + kPage) / kPage * kPage) {
    void* p =
        mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<std::byte*>(p);
    data_ = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(p) + kPage - 1) / kPage *
                                         kPage);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~Pages() { munmap(mapped_, bytes_ + kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  std::size_t bytes_;
  std::byte *mapped_, *data_;
};

// A step over dense arrays, its kernel, and memory.
class Bench {
 public:
  Step step;

  void input(DType dtype, Dims shape) { add(step.inputs, dtype, std::move(shape)); }
  void output(DType dtype, Dims shape) { add(step.outputs, dtype, std::move(shape)); }
  template <class T>
  T* data(std::size_t operand) {
    return reinterpret_cast<T*>(memory_[operand]->data());
  }
  void make(cpu::MakeKernel make_kernel) {
    std::string why_not;
    kernel_ = make_kernel(step, why_not);
    if (kernel_ == nullptr) throw std::runtime_error(why_not);
    for (auto& m : memory_) operands_.push_back(m->data());
    shared_ = std::make_unique<Pages>(kernel_->shared_scratch());
    worker_ = std::make_unique<Pages>(kernel_->worker_scratch());
  }
  void run() {
    const cpu::KernelArgs args{operands_.data(), shared_->data(), worker_->data()};
    for (std::size_t phase = 0; phase < kernel_->phases().size(); ++phase) {
      for (int p = 0; p < kernel_->phases()[phase]; ++p)
        kernel_->run(args, static_cast<int>(phase), p);
    }
  }
  const Kernel& kernel() const { return *kernel_; }

 private:
  void add(std::vector<View>& views, DType dtype, Dims shape) {
    View v;
    v.buffer = static_cast<int>(memory_.size());
    v.strides = row_major_strides(shape);
    v.type = {dtype, std::move(shape)};
    memory_.push_back(std::make_unique<Pages>(static_cast<std::size_t>(v.type.bytes())));
    if (is_float(dtype)) randomize(v.type, memory_.back()->data());
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

  std::vector<std::unique_ptr<Pages>> memory_;
  std::vector<std::byte*> operands_;
  std::unique_ptr<Pages> shared_, worker_;
  std::unique_ptr<Kernel> kernel_;
};

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(Bench& b, int runs) {
  const double start = thread_seconds();
  for (int i = 0; i < runs; ++i) b.run();
  return (thread_seconds() - start) / runs;
}

// Runs a kernel as often as asked; returns its best time on the processor, which says more on a
// busy machine. Measures half a millisecond at a time: the clock is no finer.
double best_seconds(benchmark::State& state, Bench& b) {
  seconds_of(b, 1);
  const int runs = static_cast<int>(5e-4 / std::max(seconds_of(b, 1), 1e-6)) + 1;
  double best = 1e9;
  for (auto _ : state) {
    const double took = seconds_of(b, runs);
    best = std::min(best, took);
    state.SetIterationTime(took * runs);
  }
  state.counters["us"] = best * 1e6;
  return best;
}

void report(benchmark::State& state, double flops, double seconds) {
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["of_peak"] = flops / seconds * 1e-9 / fma_peak();
}

DType dtype_of(bool bf16) { return bf16 ? DType::bf16 : DType::f32; }

enum Form { nn, nt, tn };  // which operand is transposed

void dot_case(benchmark::State& state, Form form, std::int64_t m, std::int64_t n, std::int64_t k,
              bool bf16) {
  Bench b;
  const DType dtype = dtype_of(bf16);
  b.step.attrs =
      DotDims{{}, {}, {form == tn ? 0 : 1}, {form == nt ? 1 : 0}, form == tn ? DType::f32 : dtype};
  b.input(dtype, form == tn ? Dims{k, m} : Dims{m, k});
  b.input(dtype, form == nt ? Dims{n, k} : Dims{k, n});
  b.output(form == tn ? DType::f32 : dtype, {m, n});
  b.make(cpu::make_dot);
  const double seconds = best_seconds(state, b);
  report(state, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
         seconds);
  if (m <= 16)
    state.counters["GB/s"] = static_cast<double>(n * k * byte_size(dtype)) / seconds * 1e-9;
  state.SetLabel(b.kernel().implementation() + ", " + std::to_string(b.kernel().phases()[0]) +
                 " pieces");
}

struct DotCase {
  const char* name;
  Form form;
  std::int64_t m, n, k;
};

constexpr DotCase kDots[] = {
    {"gpt2 x w", nn, 1024, 768, 768},   {"gpt2 x w", nn, 1024, 2304, 768},
    {"gpt2 x w", nn, 1024, 3072, 768},  {"gpt2 x w", nn, 1024, 768, 3072},
    {"gpt2 dx", nt, 1024, 768, 768},    {"gpt2 dx", nt, 1024, 768, 2304},
    {"gpt2 dx", nt, 1024, 768, 3072},   {"gpt2 dx", nt, 1024, 3072, 768},
    {"gpt2 dw", tn, 768, 768, 1024},    {"gpt2 dw", tn, 768, 2304, 1024},
    {"gpt2 dw", tn, 768, 3072, 1024},   {"gpt2 dw", tn, 3072, 768, 1024},
    {"gpt2 head", nt, 64, 50304, 768},  {"notebook x w", nn, 512, 64, 64},
    {"notebook x w", nn, 512, 256, 64}, {"notebook x w", nn, 512, 64, 256},
    {"notebook dx", nt, 512, 64, 64},   {"notebook dx", nt, 512, 64, 256},
    {"notebook dw", tn, 64, 64, 512},   {"notebook dw", tn, 64, 256, 512},
    {"demo x w", nn, 2048, 192, 192},   {"demo x w", nn, 2048, 768, 192},
    {"demo dx", nt, 2048, 192, 768},    {"demo dw", tn, 192, 768, 2048},
    {"decode x w", nn, 1, 3072, 768},   {"decode x w", nn, 4, 3072, 768},
    {"decode head", nt, 1, 50304, 768}, {"decode head", nt, 4, 50304, 768},
    {"decode x w", nn, 16, 3072, 768},
};

void add_dots() {
  for (const bool bf16 : {false, true}) {
    for (const DotCase& c : kDots) {
      const std::string name = std::string("dot/") + (bf16 ? "bf16/" : "f32/") + c.name + "/" +
                               std::to_string(c.m) + "x" + std::to_string(c.n) + "x" +
                               std::to_string(c.k);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [c, bf16](benchmark::State& s) { dot_case(s, c.form, c.m, c.n, c.k, bf16); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

// ---- attention ----

// The products that a kernel of causal attention makes, on tiles as it has them, and nothing else.
class ProductsAlone {
 public:
  ProductsAlone(const cpu::AttentionTask& task, bool gradient) : task_(task) {
    const std::int64_t q = task.q.size, d = task.width, most = task.run_keys();
    for (std::int64_t n = task.k.size; n <= most; n += task.k.size) {
      const cpu::ProductShape scores{.m = q,
                                     .n = n,
                                     .k = d,
                                     .a_row = d,
                                     .b_row = 1,
                                     .b_col = d,
                                     .c_row = n,
                                     .in = task.product};
      cpu::ProductShape rows{
          .m = q, .n = d, .k = n, .a_row = n, .b_row = d, .c_row = d, .in = task.product};
      cpu::ProductShape keys{.m = n,
                             .n = d,
                             .k = q,
                             .a_row = 1,
                             .a_col = n,
                             .b_row = d,
                             .c_row = d,
                             .in = task.product};
      rows.accumulate = keys.accumulate = true;
      auto& list = products_.emplace_back();
      list.emplace_back(scores);
      list.emplace_back(rows);
      if (!gradient) continue;
      list.emplace_back(scores);
      list.emplace_back(keys);
      list.emplace_back(keys);
    }
    for (const auto& list : products_) {
      for (const auto& p : list) scratch_ = std::max(scratch_, p.scratch_bytes());
    }
    // Operands of the size of q and k, side by side for each head, and a tile of scores.
    const std::int64_t heads = task.rows * task.heads, bytes = byte_size(task.product);
    q_stride_ = task.q.padded() * d;
    k_stride_ = task.k.padded() * d;
    for (auto* m : {&q_, &o_})
      *m = std::make_unique<Pages>(static_cast<std::size_t>(heads * q_stride_ * 4));
    for (auto* m : {&k_, &v_})
      *m = std::make_unique<Pages>(static_cast<std::size_t>(heads * k_stride_ * bytes));
    tile_ = std::make_unique<Pages>(static_cast<std::size_t>(q * most * 4));
    sums_ = std::make_unique<Pages>(static_cast<std::size_t>(k_stride_ * 4));
    memory_ = std::make_unique<Pages>(scratch_);
  }
  void run() {
    for (std::int64_t head = 0; head < task_.rows * task_.heads; ++head) {
      for (std::int64_t i = 0; i < task_.q.count; ++i) {
        const std::int64_t end =
            (task_.q.begin(i) + task_.q.length(i) + task_.k.size - 1) / task_.k.size;
        for (std::int64_t k = 0; k < end; k += cpu::kRun) {
          const auto n = static_cast<std::size_t>(std::min(cpu::kRun, end - k));
          multiply(products_[n - 1], head, i, k);
          flops_ += 2.0 * static_cast<double>(products_[n - 1].size()) *
                    static_cast<double>(task_.q.size) * static_cast<double>(n) *
                    static_cast<double>(task_.k.size * task_.width);
        }
      }
    }
  }
  double take_flops() { return std::exchange(flops_, 0); }

 private:
  void multiply(const std::vector<cpu::Product>& list, std::int64_t head, std::int64_t i,
                std::int64_t j) {
    const std::int64_t bytes = byte_size(task_.product), key = task_.k.begin(j) * task_.width;
    const std::int64_t query = head * q_stride_ + task_.q.begin(i) * task_.width;
    std::byte *const q = q_->data() + query * bytes, *const tile = tile_->data(),
                     *const scratch = memory_->data();
    std::byte *const k = k_->data() + (head * k_stride_ + key) * bytes, *const v =
                                                                            v_->data() +
                                                                            (head * k_stride_ +
                                                                             key) *
                                                                                bytes;
    list[0].execute(q, k, tile, scratch);
    list[1].execute(tile, v, o_->data() + query * 4, scratch);
    if (list.size() == 2) return;
    list[2].execute(q, v, tile, scratch);
    list[3].execute(tile, q, sums_->data() + key * 4, scratch);
    list[4].execute(tile, q, sums_->data() + key * 4, scratch);
  }

  cpu::AttentionTask task_;
  std::vector<std::vector<cpu::Product>> products_;  // of runs of 1, 2, ... key blocks
  std::unique_ptr<Pages> q_, k_, v_, o_, tile_, sums_, memory_;
  std::int64_t q_stride_ = 0, k_stride_ = 0;
  std::size_t scratch_ = 0;
  double flops_ = 0;
};

void attention_step(Bench& b, DType dtype, std::int64_t rows, std::int64_t t, std::int64_t heads,
                    std::int64_t d, bool gradient) {
  b.step.attrs = AttentionAttrs{0.125, 0, true};
  for (int i = 0; i < 3; ++i) b.input(dtype, {rows, t, heads, d});
  for (int i = 0; i < 4; ++i) {
    b.input(DType::i32, {rows, t});
    for (std::int64_t j = 0; j < rows * t; ++j)
      b.data<std::int32_t>(b.step.inputs.size() - 1)[j] = i < 2 ? static_cast<int>(j % t) : 0;
  }
  b.input(DType::i32, {});
  *b.data<std::int32_t>(7) = 0;
  if (gradient) {
    b.input(DType::f32, {rows, t, heads});
    b.input(DType::f32, {rows, t, heads});
    for (std::int64_t j = 0; j < rows * t * heads; ++j) b.data<float>(8)[j] = 5;
    b.input(dtype, {rows, t, heads, d});
    for (int i = 0; i < 3; ++i) b.output(dtype, {rows, t, heads, d});
  } else {
    b.output(dtype, {rows, t, heads, d});
    b.output(DType::f32, {rows, t, heads});
  }
}

// 2048 tokens. `of_products`: part of the speed of the same products alone, each by its best run of
// processor time.
void attention_case(benchmark::State& state, bool gradient, std::int64_t t, std::int64_t heads,
                    std::int64_t d, bool bf16) {
  Bench b;
  attention_step(b, dtype_of(bf16), 2048 / t, t, heads, d, gradient);
  b.make(gradient ? cpu::make_attention_grad : cpu::make_attention);
  cpu::AttentionTask task;
  cpu::attention_task(b.step, b.step.inputs.size(), b.step.outputs.size(), task);
  ProductsAlone products(task, gradient);
  double best = 1e9, best_products = 1e9, flops = 0;
  for (auto _ : state) {
    const double start = thread_seconds();
    b.run();
    const double middle = thread_seconds();
    products.run();
    flops = products.take_flops();
    best = std::min(best, middle - start);
    best_products = std::min(best_products, thread_seconds() - middle);
    state.SetIterationTime(middle - start);
  }
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["products_GFLOP/s"] = flops / best_products * 1e-9;
  state.counters["of_products"] = best_products / best;
  state.SetLabel(b.kernel().implementation());
}

void add_attention() {
  for (const bool bf16 : {false, true}) {
    for (const bool gradient : {false, true}) {
      const auto add = [&](std::int64_t t, std::int64_t heads, std::int64_t d) {
        const std::string name = std::string(gradient ? "attention_grad/" : "attention/") +
                                 (bf16 ? "bf16/" : "f32/") + std::to_string(t) + "/" +
                                 std::to_string(heads) + "x" + std::to_string(d);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [=](benchmark::State& s) { attention_case(s, gradient, t, heads, d, bf16); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      };
      for (const std::int64_t t : {256, 512, 1024, 2048}) add(t, 12, 64);
      add(128, 6, 32);
      add(32, 4, 16);
    }
  }
}

// ---- head_loss ----

void head_case(benchmark::State& state, std::int64_t tokens, std::int64_t width, std::int64_t vocab,
               bool bf16) {
  Bench b;
  b.step.attrs = HeadAttrs{0, 0, true};
  b.input(dtype_of(bf16), {1, tokens, width});
  b.input(dtype_of(bf16), {vocab, width});
  b.input(DType::i32, {1, tokens});
  b.input(DType::f32, {1, tokens});
  for (std::int64_t i = 0; i < tokens; ++i) {
    b.data<std::int32_t>(2)[i] = static_cast<std::int32_t>(i * 7919 % vocab);
    b.data<float>(3)[i] = 1;
  }
  for (int i = 0; i < 3; ++i) b.output(DType::f32, {});
  b.output(DType::f32, {1, tokens});
  b.output(dtype_of(bf16), {1, tokens, width});
  b.output(DType::f32, {vocab, width});
  b.make(cpu::make_head_loss);
  const double seconds = best_seconds(state, b);
  report(
      state,
      6.0 * static_cast<double>(tokens) * static_cast<double>(width) * static_cast<double>(vocab),
      seconds);
  state.SetLabel(b.kernel().implementation() + ", scratch " +
                 std::to_string(b.kernel().shared_scratch() >> 20) + " MiB");
}

void add_heads() {
  struct Size {
    std::int64_t tokens, width, vocab;
  };
  for (const bool bf16 : {false, true}) {
    for (const Size& s :
         {Size{512, 64, 256}, Size{2048, 192, 256}, Size{1024, 64, 8192}, Size{1024, 768, 50304}}) {
      const std::string name = std::string("head_loss/") + (bf16 ? "bf16/" : "f32/") +
                               std::to_string(s.tokens) + "x" + std::to_string(s.width) + "x" +
                               std::to_string(s.vocab);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [s, bf16](benchmark::State& state) {
                                     head_case(state, s.tokens, s.width, s.vocab, bf16);
                                   })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

const int kRegistered = [] {
  cpu::onednn_thread_init();
  add_dots();
  add_attention();
  add_heads();
  return 0;
}();

}  // namespace
}  // namespace dew::bench
