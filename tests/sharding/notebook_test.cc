// The notebook's model learns the same on every mesh.
#include "tests/sharding/notebook_runs.h"

#include <cmath>
#include <limits>

#include "dew/base/file_test_support.h"
#include "dew/checkpoint/directory.h"

namespace dew::sharding_test {
namespace {

constexpr std::int64_t kSteps = 20;
constexpr double kTolerance = 1e-5;  // relative

struct Told {
  std::vector<LogLine> lines;
  EvalResult eval;
};

Told run_on_one_device(const MeshCase& c) {
  MeshRun run(c);
  const FitResult result = run.fit(kSteps);
  return {run.lines(), result.eval.value()};
}

const Told& on_one_device(const MeshCase& c) {
  static const Told few_heads = run_on_one_device(kOne);
  static const Told many_heads = run_on_one_device(kOneOf16Heads);
  return c.heads == kOne.heads ? few_heads : many_heads;
}

void expect_near(double a, double b) { EXPECT_NEAR(a, b, kTolerance * std::abs(b)); }

class Notebook : public testing::TestWithParam<MeshCase> {
 protected:
  TemporaryDirectory directory_;
};

// One global batch a step, whatever the mesh: the same records, losses, norms and metrics.
TEST_P(Notebook, LearnsAsOnOneDevice) {
  MeshRun run(GetParam());
  const FitResult result = run.fit(kSteps);
  const Told& want = on_one_device(GetParam());
  ASSERT_EQ(run.lines().size(), want.lines.size());
  for (std::size_t s = 0; s < want.lines.size(); ++s) {
    SCOPED_TRACE(s + 1);
    expect_near(run.lines()[s].loss, want.lines[s].loss);
    expect_near(run.lines()[s].grad_norm, want.lines[s].grad_norm);
    EXPECT_EQ(run.lines()[s].tokens, want.lines[s].tokens);
    EXPECT_EQ(run.lines()[s].skipped, 0);
  }
  ASSERT_TRUE(result.eval);
  expect_near(result.eval->loss, want.eval.loss);
  expect_near(result.eval->perplexity, want.eval.perplexity);
  expect_near(result.eval->accuracy, want.eval.accuracy);
  EXPECT_EQ(result.eval->tokens, want.eval.tokens);
}

// A second run, with every replica computed and compared, has the first one's bits. So has one that
// is stopped in the middle and goes on.
TEST_P(Notebook, HasTheSameBitsTwiceAndAfterAResume) {
  const std::int64_t steps = GetParam().devices > 8 ? 4 : 12;
  MeshRun first(GetParam());
  first.fit(steps);
  MeshRun checked(GetParam(), {}, true);
  checked.fit(steps);
  EXPECT_EQ(first.state(), checked.state());

  MeshRun(GetParam(), directory_.path()).fit(steps / 2);
  MeshRun resumed(GetParam(), directory_.path());
  resumed.fit(steps);
  EXPECT_EQ(resumed.lines().size(), static_cast<std::size_t>(steps - steps / 2));
  EXPECT_EQ(first.state(), resumed.state());
  EXPECT_EQ(CheckpointReader(newest_checkpoint(directory_.path()).found->path).info().data.position,
            steps * 16);
}

// Numbers that are not finite stop the run at the same step, the state as it was.
TEST_P(Notebook, StopsAtTheSameStep) {
  const auto fit = [](const MeshCase& c, std::vector<std::string>& warnings) {
    MeshRun run(c);
    const auto lr = [](std::int64_t committed) { return committed == 2 ? 1e30 : 1e-3; };
    const std::string message =
        error_of(ErrorCode::non_finite, [&] { run.fit(kSteps, {.lr = lr}); });
    warnings = run.warnings();
    return message;
  };
  const MeshCase& one = GetParam().heads == kOne.heads ? kOne : kOneOf16Heads;
  std::vector<std::string> want, warnings;
  EXPECT_EQ(fit(GetParam(), warnings), fit(one, want));
  EXPECT_EQ(warnings, want);
  EXPECT_EQ(want.size(), 5u);
}

// Steps 2 and 3 of five have a row of infinite weight, which only one batch shard's devices see.
struct SkippedSteps {
  std::vector<StepResult> results;
  bool kept_every_bit = true;
};

SkippedSteps run_with_infinite_weights(const MeshCase& c) {
  const LMObjective objective = notebook_objective(c);
  const auto devices = cpu_devices(c.devices);
  const Arrangement on_mesh = arrange(c.mesh, c.devices, c.layout, objective.model());
  const DispatchPlan plan(
      {.global_batch = 16, .seq_len = 32, .batch_shards = on_mesh.batch_shards()});
  Stepper stepper(objective, clipped_adamw(), step_shape(plan), DType::f32, *devices,
                  {.arrangement = on_mesh});
  stepper.initialize();
  const WindowData data = notebook_data();
  Loader loader(data.train, plan, {});
  const auto state = [&] {
    std::vector<std::vector<std::byte>> out;
    for (const Stepper::Array& a : stepper.arrays()) out.push_back(a.whole());
    return out;
  };
  SkippedSteps out;
  for (std::int64_t s = 0, update = 1; s < 5; ++s) {
    StepBatch batch = loader.next();
    const Place last = plan.place(15);
    const auto row = static_cast<std::size_t>(last.shard * plan.micro_batch() + last.slot);
    if (s == 1 || s == 2) batch.weights[row * 32 + 7] = std::numeric_limits<float>::infinity();
    const auto before = state();
    out.results.push_back(stepper.step(batch, {.step = s, .update = update, .lr = 1e-3}));
    if (out.results.back().committed) {
      ++update;
    } else {
      out.kept_every_bit = out.kept_every_bit && before == state();
    }
  }
  return out;
}

TEST_P(Notebook, SkipsTheSameSteps) {
  const SkippedSteps want =
      run_with_infinite_weights(GetParam().heads == kOne.heads ? kOne : kOneOf16Heads);
  const SkippedSteps got = run_with_infinite_weights(GetParam());
  EXPECT_TRUE(got.kept_every_bit);
  for (std::size_t s = 0; s < want.results.size(); ++s) {
    SCOPED_TRACE(s + 1);
    const bool good = s != 1 && s != 2;
    EXPECT_EQ(want.results[s].committed, good);
    EXPECT_EQ(got.results[s].committed, good);
    if (!good) continue;
    expect_near(got.results[s].loss, want.results[s].loss);
    expect_near(got.results[s].grad_norm, want.results[s].grad_norm);
    expect_near(got.results[s].accuracy, want.results[s].accuracy);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Notebook, testing::ValuesIn(mesh_cases()), case_name);

}  // namespace
}  // namespace dew::sharding_test
