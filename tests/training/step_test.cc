// Whole training steps on the CPU: against the interpreter, with any number of workers, without
// allocations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "allocations.h"
#include "dew/compile.h"
#include "dew/ir/interpret.h"
#include "dew/ir/tensor.h"
#include "dew/runtime/cpu/cpu.h"
#include "dew/runtime/cpu/executable.h"
#include "dew/runtime/cpu/onednn.h"
#include "dew/train/registers.h"
#include "dew/train/stepper.h"
#include "models.h"

namespace dew {
namespace {

StepBatch batch_of(const test::Case& c) {
  DispatchPlan plan({.global_batch = c.rows,
                     .seq_len = c.shape.columns,
                     .batch_shards = 1,
                     .sequence_shards = 1,
                     .accumulate = c.shape.micro_steps,
                     .micro_batch = {},
                     .microbatches = 1,
                     .column_multiple = 1});
  EXPECT_EQ(step_shape(plan).rows, c.shape.rows);
  EXPECT_EQ(step_shape(plan).micro_steps, c.shape.micro_steps);
  StepBatch b;
  b.micro_steps = c.shape.micro_steps;
  b.rows = c.shape.rows;
  b.width = c.shape.columns;
  const auto tokens = static_cast<std::size_t>(b.micro_steps * b.rows * b.width);
  b.ids.assign(tokens, 0);
  b.labels.assign(tokens, 0);
  b.weights.assign(tokens, 0);
  b.positions.assign(tokens, 0);
  b.segments.assign(tokens, 0);
  b.row_ids.assign(static_cast<std::size_t>(b.micro_steps * b.rows), -1);
  for (std::int64_t t = 0; t < b.width; ++t) b.columns.push_back(static_cast<std::int32_t>(t));
  for (std::int64_t row = 0; row < b.micro_steps * b.rows; ++row) {
    const std::int64_t real = plan.row({row / b.rows, 0, row % b.rows});
    b.row_ids[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(real);
    for (std::int64_t t = 0; t < b.width; ++t) {
      const auto i = static_cast<std::size_t>(row * b.width + t);
      const auto bits =
          philox({5, 6}, {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(t), 0, 0});
      const auto vocab = static_cast<std::uint32_t>(c.model.vocab_size);
      b.positions[i] = static_cast<std::int32_t>(t);
      b.segments[i] =
          real < 0 ? static_cast<std::int32_t>(-1 - t) : static_cast<std::int32_t>(t / 6);
      if (real < 0) continue;
      b.ids[i] = static_cast<std::int32_t>(bits[0] % vocab);
      b.labels[i] = static_cast<std::int32_t>(bits[1] % vocab);
      b.weights[i] = bits[2] % 4 == 0 ? 0.0f : 1.0f;
      b.weight_sum += static_cast<double>(b.weights[i]);
      ++b.real_tokens;
    }
  }
  return b;
}

struct Result {
  std::vector<StepResult> steps;
  std::map<std::string, std::vector<std::byte>> state;
};

Result run(const test::Case& c, DType compute, int workers, int steps) {
  const std::unique_ptr<Backend> backend = cpu_backend(workers);
  Stepper stepper(test::objective_of(c), c.optimizer, c.shape, compute, *backend);
  stepper.set_key(key_from_seed(1));
  stepper.initialize();
  const StepBatch batch = batch_of(c);
  Result out;
  for (int s = 0; s < steps; ++s)
    out.steps.push_back(stepper.step(batch, {.step = s, .update = s + 1, .lr = c.optimizer.lr}));
  for (const Stepper::Array& a : stepper.arrays()) out.state[a.name] = a.whole();
  return out;
}

// The same calls with the interpreter on the programs as they were written, in double precision.
class InterpretedStep {
 public:
  explicit InterpretedStep(const Module& module) : module_(module) {
    for (const Register& r : module.registers) values_.emplace_back(r.type.shape);
  }

  Array& operator[](std::string_view name) {
    return values_[static_cast<std::size_t>(module_.register_index(name))];
  }

  void run(std::string_view list) {
    for (const Call& call :
         module_.lists[static_cast<std::size_t>(module_.list_index(list))].calls) {
      std::vector<Array> inputs;
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const Array& whole = values_[static_cast<std::size_t>(call.inputs[i])];
        inputs.push_back(call.sliced[i] ? part(whole, call.micro) : whole);
      }
      std::vector<Array> results =
          interpret(module_.programs[static_cast<std::size_t>(call.program)], inputs);
      for (std::size_t o = 0; o < results.size(); ++o)
        values_[static_cast<std::size_t>(call.outputs[o])] = std::move(results[o]);
    }
  }

 private:
  static Array part(const Array& whole, std::int64_t i) {
    Array out(Dims(whole.shape.begin() + 1, whole.shape.end()));
    std::copy_n(whole.data.begin() + i * static_cast<std::int64_t>(out.data.size()),
                out.data.size(), out.data.begin());
    return out;
  }

  const Module& module_;
  std::vector<Array> values_;
};

template <class T>
void fill(Array& array, const std::vector<T>& values) {
  array.data.assign(values.begin(), values.end());
}

TEST(TrainingStep, EqualsTheInterpreter) {
  for (const test::Case& c : test::cases()) {
    const LMObjective objective = test::objective_of(c);
    const Module module = training_module(objective, c.optimizer, c.shape, DType::f32);
    InterpretedStep want(module);
    for (const StateArray& a : state_arrays(objective.params(), c.optimizer)) {
      const ParamSpec& p = objective.params()[a.param];
      if (!a.starts_as_parameter) continue;
      std::vector<float> part(static_cast<std::size_t>(p.layer_elements()));
      want[a.name].data.clear();
      for (std::int64_t slot = 0; slot < p.layers(); ++slot) {
        init_part(p, key_from_seed(1), slot, 0, part);
        want[a.name].data.insert(want[a.name].data.end(), part.begin(), part.end());
      }
    }
    const StepBatch b = batch_of(c);
    fill(want[registers::kIds], b.ids);
    fill(want[registers::kLabels], b.labels);
    fill(want[registers::kWeights], b.weights);
    fill(want[registers::kPositions], b.positions);
    fill(want[registers::kSegments], b.segments);
    fill(want[registers::kRowIds], b.row_ids);
    fill(want[registers::kColumns], b.columns);
    want[registers::kInvWeight].data[0] = 1 / b.weight_sum;
    want[registers::kInvTokens].data[0] = 1.0 / static_cast<double>(b.real_tokens);
    want[registers::kKey].data = {1, 0};
    want[registers::kLr].data[0] = c.optimizer.lr;
    want[registers::kClipNorm].data[0] = c.optimizer.clip_norm;
    if (c.optimizer.name == "adamw") {
      want[registers::kC1].data[0] = bias_correction(c.optimizer, 1).c1;
      want[registers::kC2].data[0] = bias_correction(c.optimizer, 1).c2;
    }
    want.run("train");
    const Result got = run(c, DType::f32, 2, 1);
    EXPECT_NEAR(got.steps[0].loss, want[registers::kLoss].data[0], 1e-5) << c.name;
    EXPECT_NEAR(got.steps[0].grad_norm, want[registers::kGradNorm].data[0],
                1e-5 * want[registers::kGradNorm].data[0])
        << c.name;
    // The first moments are the gradients, times a known factor.
    for (const ParamSpec& p : objective.params()) {
      const Array& m = want[registers::kFirstMoment + p.name];
      double largest = 0;
      for (const double x : m.data) largest = std::max(largest, std::abs(x));
      const auto per_layer = static_cast<std::size_t>(p.layer_elements());
      for (std::int64_t slot = 0; slot < p.layers(); ++slot) {
        const auto& bytes = got.state.at(registers::kFirstMoment + p.layer_name(slot));
        const Array have = load({DType::f32, {p.layer_elements()}}, bytes.data());
        for (std::size_t k = 0; k < per_layer; ++k) {
          ASSERT_NEAR(have.data[k], m.data[static_cast<std::size_t>(slot) * per_layer + k],
                      1e-4 * largest + 1e-9)
              << c.name << " " << p.name;
        }
      }
    }
  }
}

TEST(TrainingStep, SameBitsForAnyNumberOfWorkersAndTwice) {
  for (const test::Case& c : test::cases()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const Result one = run(c, compute, 1, 3);
      EXPECT_TRUE(one.steps.back().committed) << c.name;
      for (const int workers : {1, 2, 3, 4})
        EXPECT_EQ(one.state, run(c, compute, workers, 3).state) << c.name << " " << workers;
    }
  }
}

TEST(TrainingStep, Bf16StaysCloseToF32) {
  for (const test::Case& c : test::cases()) {
    const Result a = run(c, DType::f32, 2, 3), b = run(c, DType::bf16, 2, 3);
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_NEAR(a.steps[s].loss, b.steps[s].loss, 0.02 * a.steps[s].loss) << c.name;
      EXPECT_NEAR(a.steps[s].grad_norm, b.steps[s].grad_norm, 0.05 * a.steps[s].grad_norm)
          << c.name;
    }
  }
}

TEST(TrainingStep, AllocatesNothing) {
  for (const test::Case& c : test::cases()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const std::unique_ptr<Backend> backend = cpu_backend(3);
      Stepper stepper(test::objective_of(c), c.optimizer, c.shape, compute, *backend);
      stepper.set_key(key_from_seed(1));
      stepper.initialize();
      const StepBatch batch = batch_of(c);
      stepper.step(batch, {.step = 0, .update = 1, .lr = 1e-3});
      const std::int64_t before = test::allocations();
      for (int s = 1; s < 5; ++s) stepper.step(batch, {.step = s, .update = s + 1, .lr = 1e-3});
      EXPECT_EQ(test::allocations() - before, 0) << c.name;
    }
  }
}

// A skipped update keeps every bit, and training goes on after it.
TEST(TrainingStep, NonFiniteNumbersNeverReachTheState) {
  const test::Case c = test::cases()[0];
  const std::unique_ptr<Backend> backend = cpu_backend(2);
  Stepper stepper(test::objective_of(c), c.optimizer, c.shape, DType::f32, *backend);
  stepper.set_key(key_from_seed(1));
  stepper.initialize();
  StepBatch batch = batch_of(c);
  stepper.step(batch, {.step = 0, .update = 1, .lr = 1e-3});
  const auto snapshot = [&] {
    std::vector<std::byte> all;
    for (const Stepper::Array& a : stepper.arrays())
      for (const std::byte b : a.whole()) all.push_back(b);
    return all;
  };
  const auto before = snapshot();
  const float kept = batch.weights[0];
  batch.weights[0] = std::numeric_limits<float>::infinity();
  const StepResult bad = stepper.step(batch, {.step = 1, .update = 2, .lr = 1e-3});
  EXPECT_FALSE(bad.committed);
  EXPECT_EQ(before, snapshot());
  batch.weights[0] = kept;
  EXPECT_TRUE(stepper.step(batch, {.step = 2, .update = 2, .lr = 1e-3}).committed);
  EXPECT_NE(before, snapshot());
}

// Plans of training hold kernels of ours or oneDNN's fast ones, never a fallback; and bf16 plans
// hold no f32 copy of an activation [rows, columns, ...] but what is listed.
TEST(TrainingPlan, FastKernelsOnlyAndNoF32Activations) {
  for (const test::Case& c : test::cases()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const LMObjective objective = test::objective_of(c);
      Module module = training_module(objective, c.optimizer, c.shape, compute);
      class Capture : public Backend {
       public:
        std::string name() const override { return "cpu"; }
        std::int64_t devices() const override { return 1; }
        std::unique_ptr<Executable> load(Module m, Placed placed) override {
          return std::make_unique<cpu::CpuExecutable>(
              std::move(m), std::move(placed),
              std::make_shared<cpu::Pool>(1, cpu::onednn_thread_init));
        }
      } backend;
      const std::unique_ptr<Executable> executable = compile(std::move(module), backend);
      for (const cpu::Compiled& p : static_cast<cpu::CpuExecutable&>(*executable).compiled()) {
        for (std::size_t s = 0; s < p.plan.steps.size(); ++s) {
          const std::string& kind = p.kernels[s]->implementation();
          EXPECT_TRUE(kind.starts_with("onednn") || kind.starts_with("highway"))
              << p.plan.steps[s].name << ": " << kind;
          EXPECT_EQ(kind.find("ref"), std::string::npos) << kind;
          if (compute == DType::f32) continue;
          for (const View& v : p.plan.steps[s].outputs) {
            // Statistics of norms and attention, and per-token numbers, have no dimension of the
            // width.
            const bool activation = v.type.rank() >= 3 && v.type.shape[0] == c.shape.rows &&
                                    v.type.shape[1] == c.shape.columns &&
                                    v.type.shape.back() >= c.model.emb_features / c.model.num_heads;
            EXPECT_FALSE(activation && v.type.dtype == DType::f32)
                << c.name << " " << p.plan.steps[s].name << " " << to_string(v.type);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dew
