#include <limits>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

struct Optimizer {
  const OpDef* op;
  MakeKernel make;
  std::size_t states, scalars;
};
const Optimizer kOptimizers[] = {{&adamw_op, make_adamw, 3, 4},
                                 {&lion_op, make_lion, 2, 2},
                                 {&sgd_op, make_sgd, 2, 2},
                                 {&ema_op, make_ema, 1, 0}};

void build(KernelTest& t, const Optimizer& o, std::int64_t n, bool commit, bool in_place) {
  t.step.op = o.op;
  t.step.attrs =
      o.op == &ema_op ? Attrs(Number{0.99}) : Attrs(UpdateAttrs{0.9, 0.99, 1e-8, 0.1, 0.8});
  const Type type{DType::f32, {n}};
  for (std::size_t k = 0; k < o.states; ++k) {
    t.input(type, random_values(n, static_cast<unsigned>(k + 1), k == 2 ? 0 : -1, 1));
  }
  t.input(type, random_values(n, 9));
  const double scalars[] = {0.01, 1.5, 2.5, 0.5};
  for (std::size_t k = 0; k < o.scalars; ++k)
    t.input(Type{DType::f32, {}}, {k + 1 == o.scalars ? 0.5 : scalars[k]});
  t.input(Type{DType::pred, {}}, {commit ? 1.0 : 0.0});
  for (std::size_t k = 0; k < o.states; ++k) {
    if (in_place)
      t.output_over(k);
    else
      t.output(type);
  }
}

std::vector<Array> reference(const KernelTest& t) {
  std::vector<Array> in;
  for (std::size_t i = 0; i < t.step.inputs.size(); ++i) {
    Array a(t.step.inputs[i].type.shape);
    a.data = t.operand(i);
    in.push_back(std::move(a));
  }
  return t.step.op->reference(t.step.attrs, in, {});
}

TEST(Optimizer, MatchesReference) {
  for_each_target([] {
    for (const Optimizer& o : kOptimizers) {
      for (const std::int64_t n : {0, 1, 7, 17, 1000, 4097, 70000}) {
        for (const bool in_place : {false, true}) {
          KernelTest t;
          build(t, o, n, true, in_place);
          const auto want = reference(t);
          ASSERT_TRUE(t.run(o.make, 4));
          for (std::size_t k = 0; k < o.states; ++k)
            expect_close(t.result(k), want[k].data, 4e-7, 2e-7, o.op->name);
        }
      }
    }
  });
}

TEST(Optimizer, WithoutCommitEveryBitStays) {
  for_each_target([] {
    for (const Optimizer& o : kOptimizers) {
      for (const bool in_place : {false, true}) {
        KernelTest t;
        build(t, o, 4099, false, in_place);
        const double nan = std::numeric_limits<double>::quiet_NaN();
        write_element(DType::f32, t.buffers[o.states].data(), 5, nan);  // a gradient
        write_element(DType::f32, t.buffers[0].data(), 6, nan);
        std::vector<std::vector<std::byte>> before;
        for (std::size_t k = 0; k < o.states; ++k) before.push_back(t.buffers[k].copy());
        ASSERT_TRUE(t.run(o.make, 1));
        for (std::size_t k = 0; k < o.states; ++k) {
          EXPECT_TRUE(t.buffers[static_cast<std::size_t>(t.step.outputs[k].buffer)].copy() ==
                      before[k])
              << o.op->name << k;
        }
      }
    }
  });
}

// A gradient that is a transposed product.
TEST(Optimizer, StridedGradient) {
  for_each_target([] {
    for (const Optimizer& o : kOptimizers) {
      for (const bool commit : {true, false}) {
        KernelTest t;
        build(t, o, 60 * 70, commit, false);
        for (std::size_t k = 0; k <= o.states; ++k) t.step.inputs[k].type.shape = {60, 70};
        for (std::size_t k = 0; k <= o.states; ++k) t.step.inputs[k].strides = {70, 1};
        t.step.inputs[o.states].strides = {1, 60};
        for (View& v : t.step.outputs) {
          v.type.shape = {60, 70};
          v.strides = {70, 1};
        }
        const auto want = reference(t);
        ASSERT_TRUE(t.run(o.make));
        for (std::size_t k = 0; k < o.states; ++k)
          expect_close(t.result(k), want[k].data, 4e-7, 2e-7, o.op->name);
      }
    }
  });
}

}  // namespace
}  // namespace dew::cpu
