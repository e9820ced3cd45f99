// The notebook's model learns the same on every mesh.
#include "tests/sharding/notebook_runs.h"

#include <cmath>
#include <limits>

#include "dew/base/file_test_support.h"
#include "dew/checkpoint/directory.h"

namespace dew::sharding_test {
namespace {

constexpr double kTolerance = 1e-5;  // relative

void expect_near(double a, double b) { EXPECT_NEAR(a, b, kTolerance * std::abs(b)); }

class Notebook : public testing::TestWithParam<MeshCase> {
 protected:
  TemporaryDirectory directory_;
};

// One global batch a step, whatever the mesh: the same records, losses, norms and metrics.
TEST_P(Notebook, LearnsAsOnOneDevice) {
  MeshRun run(GetParam());
  const FitResult result = run.fit(kNotebookSteps);
  const Told& want = on_one_device(GetParam().heads);
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
  const std::int64_t steps = GetParam().devices > 8 ? 2 : 6;
  MeshRun first(GetParam(), {}, true);
  first.fit(steps);
  MeshRun(GetParam(), directory_.path()).fit(steps / 2);
  MeshRun second(GetParam(), directory_.path());
  second.fit(steps);
  EXPECT_EQ(second.lines().size(), static_cast<std::size_t>(steps - steps / 2));
  EXPECT_EQ(first.state(), second.state());
  EXPECT_EQ(CheckpointReader(newest_checkpoint(directory_.path()).found->path).info().data.position,
            steps * 16);
}

// Numbers that are not finite stop the run at the same step.
TEST_P(Notebook, StopsAtTheSameStep) {
  struct End {
    std::string error;
    std::vector<std::string> warnings;
    bool operator==(const End&) const = default;
  };
  const auto end_of = [](const MeshCase& c) {
    MeshRun run(c);
    const auto lr = [](std::int64_t committed) { return committed == 2 ? 1e30 : 1e-3; };
    const std::string error =
        error_of(ErrorCode::non_finite, [&] { run.fit(kNotebookSteps, {.lr = lr}); });
    return End{error, run.warnings()};
  };
  static std::map<std::int64_t, End> ends;
  const std::int64_t heads = GetParam().heads;
  if (!ends.contains(heads)) ends[heads] = end_of(one_device(heads));
  EXPECT_EQ(ends[heads].warnings.size(), 5u);
  EXPECT_TRUE(end_of(GetParam()) == ends[heads]);
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
  static std::map<std::int64_t, SkippedSteps> on_one;
  const std::int64_t heads = GetParam().heads;
  if (!on_one.contains(heads)) on_one[heads] = run_with_infinite_weights(one_device(heads));
  const SkippedSteps &want = on_one[heads], got = run_with_infinite_weights(GetParam());
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
