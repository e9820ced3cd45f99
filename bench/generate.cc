// Tokens a second of generation, beside the bandwidth with which this machine reads memory: a token
// must read every weight once.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "dew/dew.h"
#include "dew/generate/cached_transformer.h"
#include "dew/generate/sampler.h"

namespace dew {
namespace {

models::TransformerConfig gpt2_124m() {
  return {.vocab_size = 50304,
          .emb_features = 768,
          .num_layers = 12,
          .num_heads = 12,
          .max_seq_len = 1024,
          .mlp = "gelu",
          .positions = "learned",
          .norm = "layer",
          .qk_norm = false,
          .attention_bias = true,
          .mlp_bias = true};
}

models::TransformerConfig demo() {
  return {.vocab_size = 256, .emb_features = 192, .num_layers = 4, .num_heads = 6};
}

models::TransformerConfig notebook() {
  return {.vocab_size = 256, .emb_features = 64, .num_layers = 2, .num_heads = 4};
}

// Weights that a token reads: all but the rows of tables that are looked up.
std::int64_t bytes_read(const models::CausalTransformer& model, DType compute) {
  std::int64_t bytes = 0;
  for (const ParamSpec& param : model.params()) {
    if (param.name != "embed_positions/embedding")
      bytes += param.type.elements() * byte_size(parameter_dtype(param, compute));
  }
  return bytes;
}

// Time does not hang on the values, but drawing as many does.
void load_values(CachedTransformer& cached) {
  cached.load([](const ParamSpec&, std::int64_t, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = 0.01f * (static_cast<float>(i % 17) - 8.0f);
  });
}

// range(0): tokens read before; range(1): bf16.
template <models::TransformerConfig (*Config)()>
void decode(benchmark::State& state) {
  const std::unique_ptr<Backend> backend = cpu_devices();
  const models::CausalTransformer model(Config());
  const std::int64_t before = state.range(0);
  const DType compute = state.range(1) != 0 ? DType::bf16 : DType::f32;
  constexpr std::int64_t kSteps = 32;
  CachedTransformer cached(model, {.rows = 1, .capacity = before + kSteps, .chunk = before},
                           compute, *backend);
  load_values(cached);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(before), 1);
  const Ids prompt(ids), next(ids.data(), 1);
  cached.read({&prompt, 1});
  for (auto _ : state) {
    if (cached.room(0) == 0) {
      state.PauseTiming();
      cached.reset();
      cached.read({&prompt, 1});
      state.ResumeTiming();
    }
    cached.read({&next, 1});
    benchmark::DoNotOptimize(cached.logits(0).data());
  }
  state.SetBytesProcessed(state.iterations() * bytes_read(model, compute));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(decode<gpt2_124m>)
    ->Args({16, 0})
    ->Args({64, 0})
    ->Args({960, 0})
    ->Args({16, 1})
    ->Args({64, 1})
    ->Args({960, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(decode<demo>)
    ->Args({16, 0})
    ->Args({480, 0})
    ->Args({16, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(decode<notebook>)->Args({16, 0})->UseRealTime()->Unit(benchmark::kMicrosecond);

template <models::TransformerConfig (*Config)()>
void prefill(benchmark::State& state) {
  const std::unique_ptr<Backend> backend = cpu_devices();
  const models::CausalTransformer model(Config());
  const std::int64_t tokens = state.range(0);
  const DType compute = state.range(1) != 0 ? DType::bf16 : DType::f32;
  CachedTransformer cached(model, {.rows = 1, .capacity = tokens, .chunk = tokens}, compute,
                           *backend);
  load_values(cached);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 1);
  const Ids prompt(ids);
  for (auto _ : state) {
    cached.reset();
    cached.read({&prompt, 1});
  }
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(prefill<gpt2_124m>)
    ->Args({16, 0})
    ->Args({512, 0})
    ->Args({512, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(prefill<demo>)
    ->Args({128, 0})
    ->Args({128, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// range(0): top_k; range(1): top_p in percent.
void sample(benchmark::State& state) {
  Sampler sampler({.top_k = state.range(0), .top_p = static_cast<double>(state.range(1)) / 100});
  std::vector<float> scores(50304);
  fill_normal(key_from_seed(1), 0, 2, scores);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.next(scores));
}
BENCHMARK(sample)->Args({0, 100})->Args({40, 100})->Args({0, 90})->Unit(benchmark::kMicrosecond);

std::uint64_t read_all(const std::uint64_t* p, std::size_t n) {
  std::uint64_t s[8] = {};
  for (std::size_t i = 0; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) s[j] |= p[i + j];
  }
  return std::accumulate(s, s + 8, std::uint64_t{0});
}

// All cores that this process may use together read an array of so many MiB, on large pages as a
// model's weights are.
void read_memory(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0)) << 20;
  void* const memory = std::aligned_alloc(std::size_t{2} << 20, size);
  ::madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 1, size);
  const auto* const data = static_cast<const std::uint64_t*>(memory);
  cpu_set_t cores;
  ::sched_getaffinity(0, sizeof(cores), &cores);
  const auto workers = static_cast<std::size_t>(CPU_COUNT(&cores));
  const std::size_t part = size / 8 / workers;
  for (auto _ : state) {
    std::vector<std::jthread> threads;
    for (std::size_t w = 1; w < workers; ++w)
      threads.emplace_back([&, w] { benchmark::DoNotOptimize(read_all(data + w * part, part)); });
    benchmark::DoNotOptimize(read_all(data, part));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
  std::free(memory);
}
BENCHMARK(read_memory)->Arg(500)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dew
