// One training step of the notebook's model on meshes of simulated devices, and how long it takes
// to make it ready to run. Nothing is learned: weights are zeros.
#include <benchmark/benchmark.h>

#include <limits>

#include "dew/runtime/cpu/cpu.h"
#include "dew/train/placement.h"
#include "dew/train/step.h"

namespace dew {
namespace {

struct Setting {
  const char* name;
  MeshSpec mesh;
  std::int64_t devices, heads = 4, kv_heads = 4;
};

const Setting kSettings[] = {
    {"one", {}, 1},
    {"data8", {}, 8},
    {"fsdp8", {.fsdp = 8}, 8},
    {"tensor4", {.tensor = 4}, 4},
    {"fsdp2 tensor4", {.fsdp = 2, .tensor = 4}, 8},
    {"data64", {}, 64},
    {"one, 16 heads", {}, 1, 16, 8},
    {"fsdp16 tensor16", {.fsdp = 16, .tensor = 16}, 256, 16, 8},
};

class Prepared {
 public:
  explicit Prepared(const Setting& s)
      : objective_(models::CausalTransformer({.vocab_size = 256,
                                              .emb_features = 64,
                                              .num_layers = 2,
                                              .num_heads = s.heads,
                                              .num_kv_heads = s.kv_heads,
                                              .head_dim = 16,
                                              .max_seq_len = 32}),
                   {.seq_len = 32}),
        backend_(cpu_backend()) {
    Arrangement a{.mesh = build_mesh(s.mesh, s.devices), .layout = {.min_shard = 1}};
    a.mesh = mesh_for_heads(a.mesh, s.heads, s.kv_heads);
    const std::int64_t rows = std::max<std::int64_t>(16, a.batch_shards());
    const Module module = training_module(objective_, {.clip_norm = 1}, {1, rows, 32}, DType::f32);
    executable_ =
        compile(module, *backend_, {.placement = place_module(module, objective_.params(), a)});
  }

  void step() { executable_->run(0); }

  // The least of some steps, over the time of its own matrix products: those that the plan has as
  // steps, spread over all threads.
  double over_products() {
    constexpr int kRuns = 50;
    double least = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns; ++run) {
      executable_->start_trace(0, 1);
      step();
      const Trace trace = executable_->take_trace();
      double products = 0;
      for (const auto& spans : trace.threads) {
        for (const TraceSpan& s : spans) {
          if (trace.steps[static_cast<std::size_t>(s.step)].op == "dot")
            products += static_cast<double>(s.end_ns - s.begin_ns);
        }
      }
      products /= static_cast<double>(trace.threads.size());
      least = std::min(
          least, static_cast<double>(trace.runs[0].end_ns - trace.runs[0].begin_ns) / products);
    }
    return least;
  }

 private:
  LMObjective objective_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> executable_;
};

void BM_step(benchmark::State& state, const Setting& setting) {
  Prepared p(setting);
  p.step();
  for (auto _ : state) p.step();
  state.counters["over_products"] = p.over_products();
}

void BM_compile(benchmark::State& state, const Setting& setting) {
  for (auto _ : state) Prepared p(setting);
}

const int kRegistered = [] {
  for (const Setting& s : kSettings) {
    benchmark::RegisterBenchmark((std::string("step/") + s.name).c_str(),
                                 [&s](benchmark::State& state) { BM_step(state, s); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark((std::string("compile/") + s.name).c_str(),
                                 [&s](benchmark::State& state) { BM_compile(state, s); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  return 0;
}();

}  // namespace
}  // namespace dew
