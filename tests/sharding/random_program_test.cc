// Random programs on random meshes, inputs and pins placed at random: the loss and every gradient
// equal those on one device. A case that fails shrinks to a short program.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "dew/autodiff/grad.h"
#include "dew/ir/interpret.h"
#include "dew/ir/rewrite.h"
#include "tests/sharding/placed_program.h"

namespace dew {
namespace {

using sharding_test::all_specs;
using sharding_test::Judges;
using sharding_test::PlacedProgram;

// Sizes that the axes divide, and some that they do not.
constexpr std::int64_t kRows = 12, kWidth = 6, kVocab = 9;

// One op: which, on which values, and a number for its details. All are taken modulo what there is.
using Step = std::tuple<int, int, int, int>;

std::vector<Mesh> meshes() {
  return {build_mesh({.fsdp = 2}, 2),
          build_mesh({.tensor = 3}, 3),
          build_mesh({}, 4),
          build_mesh({.fsdp = 2, .tensor = 2}, 4),
          build_mesh({.tensor = 2}, 6),
          build_mesh({.fsdp = 2, .tensor = 2}, 8)};
}

class RandomProgram {
 public:
  RandomProgram(const std::vector<Step>& steps, const Mesh& mesh, unsigned seed)
      : mesh_(mesh), random_(seed) {
    values_ = {input({kRows, kWidth}), input({kRows, kWidth})};
    table_ = input({kVocab, kWidth}, true);
    scale_ = input({kWidth}, true);
    matrix_ = input({kWidth, kWidth}, true);
    stack_ = input({3, kWidth, kWidth}, true);
    ids_ = placed_.input({DType::i32, {kRows}}, numbers({kRows}, 0, kVocab), any_spec({kRows}));
    for (const Step& step : steps) values_.push_back(made(step));
    finish();
  }

  const PlacedProgram& placed() const { return placed_; }

 private:
  Array numbers(const Dims& shape, int low, int high) {
    Array out(shape);
    for (double& x : out.data)
      x = low + static_cast<double>(random_() % static_cast<unsigned>(high - low));
    return out;
  }

  Spec any_spec(const Dims& shape) {
    const std::vector<Spec> all = all_specs(mesh_, shape, false);
    return all[random_() % all.size()];
  }

  Value input(const Dims& shape, bool weight = false) {
    Array array = numbers(shape, -8, 9);
    for (double& x : array.data) x /= 8;
    const Value value = placed_.input({DType::f32, shape}, array, any_spec(shape), weight);
    inputs_.push_back(value);
    return value;
  }

  // All values are [kRows, kWidth]; what has another shape on the way comes back to it.
  Value made(const Step& step) {
    const auto [op, first, second, detail] = step;
    const Value a = values_[static_cast<std::size_t>(first) % values_.size()];
    const Value b = values_[static_cast<std::size_t>(second) % values_.size()];
    switch (op % 14) {
      case 0:
        return tanh(a);
      case 1:
        return add(a, b);
      case 2:
        return mul(a, logistic(b));
      case 3:
        return linear(a, matrix_);
      case 4:
        return transpose(tanh(transpose(a, {1, 0})), {1, 0});
      case 5:
        return reshape(mul(reshape(a, {3, 4, 2, 3}), reshape(tanh(b), {3, 4, 2, 3})),
                       {kRows, kWidth});
      case 6:
        return along(reduce_sum(a, {detail % 2}), detail % 2);
      case 7:
        return rms_norm(a, scale_, 1e-5).y;
      case 8:
        return add(gather_rows(table_, ids_), a);
      case 9:
        return pinned(add(a, b));
      case 10:
        return pad(tanh(slice(a, {detail % 5, 0}, {kRows, kWidth})), {detail % 5, 0}, {0, 0});
      case 11:
        return joined(a, b, detail % 2);
      case 12:
        return looped(a);
      default:
        return linear(a, dot(tanh(a), b, {.lhs_contract = {0}, .rhs_contract = {0}}));
    }
  }

  Value along(Value sums, std::int64_t dim) {
    return broadcast(tanh(sums), {kRows, kWidth}, {1 - dim});
  }

  Value pinned(Value x) {
    placed_.pin(x, any_spec({kRows, kWidth}).dims);
    return x;
  }

  static Value joined(Value a, Value b, std::int64_t dim) {
    const std::array parts = {a, b};
    const Value both = tanh(concatenate(parts, dim));
    return dim == 0 ? slice(both, {5, 0}, {5 + kRows, kWidth})
                    : slice(both, {0, 3}, {kRows, 3 + kWidth});
  }

  Value looped(Value x) {
    auto body = std::make_shared<Program>("body" + std::to_string(++loops_));
    const Value carry = body->input("x", x.type());
    const Value weight = body->input("w", {DType::f32, {kWidth, kWidth}}, true);
    body->output("x", tanh(linear(carry, weight)));
    const std::array carries = {x}, slices = {stack_};
    return scan(body, carries, slices, {}, 3).carries.at(0);
  }

  // The loss takes in all values, so that each has a gradient.
  void finish() {
    Value sum = values_.back();
    for (const Value v : values_) sum = add(sum, v);
    const Value loss = reduce_sum(mul(sum, tanh(sum)), {0, 1});
    placed_.program.output("loss", loss);
    const std::vector<Value> grads = gradients(placed_.program, loss, inputs_);
    for (std::size_t i = 0; i < grads.size(); ++i)
      placed_.program.output("grad" + std::to_string(i), grads[i]);
    // A differentiated loop stands there twice before.
    placed_.program = without_dead_code(without_duplicates(placed_.program));
  }

  const Mesh& mesh_;
  std::mt19937 random_;
  PlacedProgram placed_;
  std::vector<Value> values_, inputs_;
  int loops_ = 0;
  Value table_, scale_, matrix_, stack_, ids_;
};

double worst(const std::vector<Array>& found, const std::vector<Array>& expected) {
  RC_ASSERT(found.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    RC_ASSERT(found[i].shape == expected[i].shape);
    double scale = 1;
    for (const double x : expected[i].data) scale = std::max(scale, std::abs(x));
    for (std::size_t k = 0; k < found[i].data.size(); ++k)
      most = std::max(most, std::abs(found[i].data[k] - expected[i].data[k]) / scale);
  }
  return most;
}

TEST(RandomPrograms, LossAndGradientsAreThoseOfOneDevice) {
  const std::vector<Mesh> all = meshes();
  EXPECT_TRUE(rc::check("a program on devices is the whole one", [&] {
    const auto number = rc::gen::inRange(0, 60);
    const auto steps =
        *rc::gen::container<std::vector<Step>>(rc::gen::tuple(number, number, number, number));
    const Mesh& mesh = all[*rc::gen::inRange<std::size_t>(0, all.size())];
    const auto seed = *rc::gen::inRange<unsigned>(0, 1000);
    const RandomProgram random(
        {steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(12, std::ssize(steps))}, mesh,
        seed);
    const PlacedProgram& placed = random.placed();
    const std::vector<Array> expected = interpret(placed.program, placed.inputs);
    const Judges judges(placed, mesh);
    RC_LOG() << to_string(mesh) << "\n" << judges.annotated();
    RC_ASSERT(worst(judges.lockstep(), expected) < 1e-9);  // in double precision
    RC_ASSERT(worst(judges.planned(), expected) < 1e-4);   // values kept in f32
    std::vector<int> counts;
    for (int p = 2; p <= mesh.devices(); ++p) {
      if (mesh.devices() % p == 0) counts.push_back(p);
    }
    RC_ASSERT(worst(judges.on_processes(*rc::gen::elementOf(counts)), expected) < 1e-4);
  }));
}

}  // namespace
}  // namespace dew
