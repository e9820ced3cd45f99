// Every op on devices: however its operands are placed and whatever is asked of its results, the
// partitioned op is the whole one. Judges: all devices in lockstep, the plan with the references,
// the CPU's kernels.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "dew/ir/interpret.h"
#include "dew/sharding/mesh.h"
#include "tests/conformance/by_op.h"
#include "tests/conformance/tolerance.h"
#include "tests/effort.h"
#include "tests/sharding/placed_program.h"

namespace dew {
namespace {

using sharding_test::all_specs;
using sharding_test::Judges;
using sharding_test::PlacedProgram;

// Sums of these round even for integers, and differ with their order; all others are bit-equal.
bool sums_fractions(const OpDef& op) {
  return op.has(kNorm) || &op == &rms_norm_grad_op || &op == &layer_norm_grad_op ||
         &op == &attention_grad_op || &op == &head_loss_op || &op == &dropout_op;
}

struct OnMesh {
  Mesh mesh;
  Dims sizes;  // of dimensions: most divide, some do not
};

std::vector<OnMesh> meshes() {
  return {{build_mesh({.fsdp = 2}, 2), {2, 4, 6, 8, 2, 4, 1, 3, 5, 0}},
          {build_mesh({.tensor = 3}, 3), {3, 6, 3, 6, 3, 1, 5, 7, 0}},
          {build_mesh({}, 4), {4, 8, 4, 8, 4, 2, 1, 3, 0}},
          {build_mesh({.fsdp = 2, .tensor = 2}, 4), {2, 4, 8, 4, 2, 4, 1, 3, 7, 0}},
          {build_mesh({.tensor = 3}, 6), {2, 3, 6, 6, 6, 3, 1, 5, 0}},
          {build_mesh({.fsdp = 2, .tensor = 2}, 8), {2, 4, 8, 8, 2, 4, 1, 5, 0}}};
}

void expect_same(const std::vector<Array>& found, const std::vector<Array>& expected,
                 const std::vector<double>& relative) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t r = 0; r < found.size(); ++r) {
    ASSERT_EQ(found[r].shape, expected[r].shape);
    double scale = 1;
    for (const double x : expected[r].data)
      scale = std::isfinite(x) ? std::max(scale, std::fabs(x)) : scale;
    for (std::size_t i = 0; i < found[r].data.size(); ++i) {
      const double a = found[r].data[i], b = expected[r].data[i];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      ASSERT_LE(std::fabs(a - b), relative[r] * scale)
          << "result " << r << ", element " << i << ": " << a << " for " << b;
    }
  }
}

// One sample of an op on one mesh, in all placements or in as many random ones as are asked for.
class Placements {
 public:
  Placements(const OpSample& row, const Sample& sample, const Mesh& mesh, std::uint64_t seed)
      : row_(row), sample_(sample), mesh_(mesh), random_(seed) {
    const Program& p = sample.program;
    node_ = &p.nodes().back();
    for (const int id : node_->operands) {
      const Type& type = p.values()[static_cast<std::size_t>(id)].type;
      operands_.push_back(all_specs(mesh, type.shape, can_be_sum(type, operands_.size())));
      ways_ *= static_cast<double>(operands_.back().size());
    }
    for (int i = 0; i < node_->result_count; ++i) {
      results_.push_back(all_specs(mesh, result_type(i).shape, false));
      ways_ *= 2 * static_cast<double>(results_.back().size()) + 1;
    }
    expected_ = interpret(p, sample.inputs);
  }

  bool all_in(int most) const { return ways_ <= most; }

  // Returns how many were tried.
  int check(int most, DType floats, Backend& backend) {
    const bool all = all_in(most);
    const int count = all ? static_cast<int>(ways_) : most;
    for (int i = 0; i < count; ++i) {
      all_ = all;
      number_ = i;
      check_one(floats, backend);
      if (testing::Test::HasFailure()) return i;
    }
    return count;
  }

 private:
  const Type& result_type(int i) const {
    return sample_.program.values()[static_cast<std::size_t>(node_->first_result + i)].type;
  }

  // Sums of integers are exact.
  bool can_be_sum(const Type& type, std::size_t operand) const {
    const std::vector<double>& data = sample_.inputs[operand].data;
    return (is_float(type.dtype) || type.dtype == DType::i32) && !data.empty() &&
           std::ranges::all_of(data,
                               [](double x) { return x == std::floor(x) && std::fabs(x) < 200; });
  }

  std::size_t choose(std::size_t ways) {
    if (!all_) return random_() % ways;
    const std::size_t digit = number_ % ways;
    number_ /= ways;
    return digit;
  }

  // At random, every third one stands as one before it, if it can.
  const Spec& choose_spec(const std::vector<Spec>& ways) {
    if (!all_ && !chosen_.empty() && random_() % 3 == 0) {
      const auto like = std::ranges::find(ways, chosen_[random_() % chosen_.size()]);
      if (like != ways.end()) return *like;
    }
    const Spec& spec = ways[choose(ways.size())];
    chosen_.push_back(spec);
    return spec;
  }

  PlacedProgram place() {
    PlacedProgram placed;
    chosen_.clear();
    std::vector<Value> operands;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const ValueInfo& info =
          sample_.program.values()[static_cast<std::size_t>(node_->operands[i])];
      const Spec& spec = choose_spec(operands_[i]);
      const Array& array = sample_.inputs[i];
      operands.push_back(spec.partial == 0
                             ? placed.input(info.type, array, spec, info.weight)
                             : placed.summed_input(info.type, array, spec, mesh_, random_));
    }
    // What a result is asked to be: nothing, like an input, pinned.
    std::vector<Spec> wished;
    std::vector<Value> likes;
    for (int i = 0; i < node_->result_count; ++i) {
      const std::vector<Spec>& ways = results_[static_cast<std::size_t>(i)];
      const std::size_t k = choose(2 * ways.size() + 1);
      wished.push_back(k == 0 ? Spec{} : ways[(k - 1) / 2]);
      const bool like = k > 0 && (k % 2 == 0 || result_type(i).rank() == 0);
      likes.push_back(like
                          ? placed.input(result_type(i), Array(result_type(i).shape), wished.back())
                          : Value{});
      if (k == 0) wished.back().partial = 1;  // no wish
    }
    const std::vector<Value> results = placed.program.add(*row_.op, operands, node_->attrs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (likes[i].valid()) {
        placed.program.set_like(results[i], likes[i].id);
      } else if (wished[i].partial == 0) {
        placed.pin(results[i], wished[i].dims);
      }
      placed.program.output("y" + std::to_string(i), results[i]);
    }
    return placed;
  }

  void check_one(DType floats, Backend& backend) {
    const PlacedProgram placed = place();
    std::string specs = to_string(mesh_) + "\n" + print(placed.program);
    for (const Spec& s : placed.specs) specs += to_string(mesh_, s) + "\n";
    try {
      const Judges judges(placed, mesh_);
      SCOPED_TRACE(specs + judges.annotated() + print(judges.parts().module.programs[0]));
      const double exact = sums_fractions(*row_.op) ? 1e-12 : 0;
      // Partial sums in bf16 are rounded before they meet, and may cancel.
      const bool meets_rounded =
          floats == DType::bf16 &&
          std::ranges::any_of(placed.specs, [](const Spec& s) { return s.partial != 0; });
      std::vector<double> tolerances;
      for (int i = 0; i < node_->result_count; ++i)
        tolerances.push_back((meets_rounded ? 8 : 4) *
                             allowed(tolerance_of(*row_.op), floats, result_type(i).dtype));
      judge(
          "lockstep", [&] { return judges.lockstep(); },
          std::vector<double>(tolerances.size(), exact));
      judge(
          "plan", [&] { return judges.planned(); }, tolerances);
      judge(
          "kernels", [&] { return judges.executed(backend); }, tolerances);
      if (tried_++ % 3 == 0) {
        const int processes = process_count();
        judge(
            "processes", [&] { return judges.on_processes(processes); }, tolerances);
      }
    } catch (const std::exception& e) {
      FAIL() << e.what() << "\n" << specs;
    }
  }

  // A number that divides the devices.
  int process_count() {
    const auto devices = static_cast<int>(mesh_.devices());
    int count = 2 + static_cast<int>(random_() % static_cast<unsigned>(devices - 1));
    while (devices % count != 0) ++count;
    return count;
  }

  template <class Run>
  void judge(const char* name, Run run, const std::vector<double>& tolerances) {
    SCOPED_TRACE(name);
    std::vector<Array> found;
    try {
      found = run();
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
    expect_same(found, expected_, tolerances);
  }

  const OpSample& row_;
  const Sample& sample_;
  const Mesh& mesh_;
  std::mt19937_64 random_;
  const Node* node_;
  std::vector<std::vector<Spec>> operands_, results_;
  std::vector<Array> expected_;
  std::vector<Spec> chosen_;
  double ways_ = 1;
  bool all_ = false;
  std::size_t number_ = 0;
  int tried_ = 0;
};

constexpr int kSamples = 3, kPlacements = 8;

class OnMeshes : public ByOp {};
DEW_FOR_EVERY_OP(OnMeshes, op_samples());

TEST_P(OnMeshes, PartitionedIsWhole) {
  const OpSample& row = GetParam();
  if (row.op == &scan_op) GTEST_SKIP() << "random programs have scans";
  const std::unique_ptr<Backend> backend = cpu_backend(1);
  int tried = 0, samples = 0, exhausted = 0;
  for (const OnMesh& on : meshes()) {
    const auto check = [&](const Sample& sample) {
      const Node& node = sample.program.nodes().back();
      const DType floats =
          node.operands.empty() ? DType::f32 : sample.program.values()[0].type.dtype;
      const std::uint64_t seed = base_seed() + static_cast<std::uint64_t>(tried);
      Placements placements(row, sample, on.mesh, seed);
      ++samples;
      exhausted += placements.all_in(effort(kPlacements)) ? 1 : 0;
      tried += placements.check(effort(kPlacements), floats == DType::bf16 ? floats : DType::f32,
                                *backend);
    };
    for_samples(row, std::min(effort(kSamples), kSamples), {.whole = true, .sizes = on.sizes},
                check);
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, 0);
  std::printf("%d placements; every one of %d of %d samples\n", tried, exhausted, samples);
}

}  // namespace
}  // namespace dew
