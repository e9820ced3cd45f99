#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

void build(KernelTest& t, DType dtype, const Dims& shape, const RopeDims& dims,
           double most = 3000) {
  t.step.op = &rope_op;
  t.step.attrs = dims;
  t.input(Type{dtype, shape}, random_values(element_count(shape), 1));
  const Type positions{DType::i32, {shape[0], shape[1]}};
  std::vector<double> p = random_values(positions.elements(), 2, 0, most);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::floor(p[i]);
  if (!p.empty()) p.back() = most;
  t.input(positions, p);
  t.input(Type{DType::f32, {}}, {10000.0});
}

void check(KernelTest& t, const std::string& what) {
  std::vector<Array> in;
  for (std::size_t i = 0; i < t.step.inputs.size(); ++i) {
    Array a(t.step.inputs[i].type.shape);
    a.data = t.operand(i);
    in.push_back(std::move(a));
  }
  const auto want = rope_op.reference(t.step.attrs, in, std::vector<Type>{t.step.inputs[0].type});
  ASSERT_TRUE(t.run(make_rope, 3)) << what;
  const DType dtype = t.step.outputs[0].type.dtype;
  expect_close(t.result(), stored(dtype, want[0].data), rounding(dtype), 1e-6, what);
}

TEST(Rope, MatchesReference) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t d : {2, 6, 16, 18, 64, 66, 128}) {
        for (const bool inverse : {false, true}) {
          KernelTest t;
          build(t, dtype, {2, 65, 3, d}, RopeDims{.inverse = inverse});
          t.output(t.step.inputs[0].type);
          check(t, std::to_string(d));
        }
      }
    }
  });
}

TEST(Rope, EmptyArraysAndScalings) {
  for_each_target([] {
    const RopeDims linear{.scaling = "linear", .factor = 4};
    const RopeDims llama{.scaling = "llama3",
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_seq_len = 512};
    for (const RopeDims& dims : {RopeDims{}, linear, llama}) {
      for (const Dims& shape : std::vector<Dims>{{0, 5, 2, 8},
                                                 {2, 0, 2, 8},
                                                 {2, 3, 0, 8},
                                                 {2, 3, 2, 0},
                                                 {1, 1, 1, 64},
                                                 {3, 700, 2, 64}}) {
        KernelTest t;
        build(t, DType::f32, shape, dims);
        t.output(t.step.inputs[0].type);
        check(t, dims.scaling + " " + join(shape));
      }
    }
  });
}

TEST(Rope, FarPositions) {
  for_each_target([] {
    KernelTest t;
    build(t, DType::f32, {1, 500, 1, 64}, RopeDims{}, 1e6);
    t.output(t.step.inputs[0].type);
    check(t, "far");
  });
}

TEST(Rope, InPlaceAndStridedHeads) {
  for_each_target([] {
    KernelTest t;
    build(t, DType::f32, {2, 9, 4, 18}, RopeDims{});
    t.output_over(0);
    check(t, "in place");
    // Heads of the queries within rows that also hold keys and values.
    KernelTest u;
    build(u, DType::bf16, {2, 9, 4, 18}, RopeDims{});
    const Dims strides = {9 * 300, 300, 18, 1};
    u.step.inputs[0] = u.view(u.buffer(DType::bf16, 2 * 9 * 300, random_values(2 * 9 * 300, 5)),
                              u.step.inputs[0].type, strides, 18);
    u.output(u.step.inputs[0].type);
    u.step.inputs[1].strides = {0, 1};
    check(u, "strided");
  });
}

}  // namespace
}  // namespace dew::cpu
