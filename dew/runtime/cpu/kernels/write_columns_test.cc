#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

// Some outside, many equal.
std::vector<double> some_columns(std::int64_t n, std::int64_t columns) {
  std::mt19937 random(2);
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<double>(random() % static_cast<unsigned>(columns + 2)) - 1.0);
  return out;
}

enum class Base { dense, repeated, turned };
enum class Target { other, same, donated };

View base_view(KernelTest& t, const Type& type, Base base) {
  const Dims& s = type.shape;
  if (base == Base::repeated) return t.view(t.buffer(type.dtype, 1, {3.0}), type, {0, 0, 0, 0});
  const int buffer = t.buffer(type.dtype, type.elements(), random_values(type.elements(), 1));
  if (base == Base::dense) return t.view(buffer, type);
  return t.view(buffer, type,
                {s[1] * s[3] * s[2], s[3] * s[2], 1, s[2]});  // [b, s, d, k] in memory
}

void check_case(DType dtype, const Dims& shape, std::int64_t tokens, Base base, Target target,
                unsigned seed) {
  KernelTest t;
  t.step.op = &write_columns_op;
  const Type type{dtype, shape}, updates{dtype, {shape[0], tokens, shape[2], shape[3]}};
  t.step.inputs.push_back(base_view(t, type, base));
  t.input({DType::i32, {shape[0], tokens}}, some_columns(shape[0] * tokens, shape[1]));
  t.input(updates, random_values(updates.elements(), 3));
  if (target == Target::other) t.output(type);
  if (target == Target::same) t.output_over(0);
  if (target == Target::donated) t.output_donated(0);
  std::vector<Array> in;
  for (std::size_t i = 0; i < 3; ++i) {
    in.emplace_back(t.step.inputs[i].type.shape);
    in.back().data = t.operand(i);
  }
  const std::vector<Array> want = write_columns_op.reference(NoAttrs{}, in, {&type, 1});
  ASSERT_TRUE(t.run(make_write_columns, seed));
  EXPECT_EQ(t.result(), want[0].data);
}

TEST(WriteColumns, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::pred}) {
    for (const std::int64_t tokens : {0, 1, 3, 40}) {
      for (const unsigned seed : {0u, 1u}) {
        for (const Target target : {Target::other, Target::same, Target::donated})
          check_case(dtype, {2, 18, 3, 5}, tokens, Base::dense, target, seed);
        for (const Base base : {Base::repeated, Base::turned})
          check_case(dtype, {2, 18, 3, 5}, tokens, base, Target::other, seed);
        check_case(dtype, {1, 50, 7, 257}, tokens, Base::dense, Target::same, seed);
        check_case(dtype, {3, 1, 1, 1}, tokens, Base::dense, Target::other, seed);
      }
      for (const Dims& empty : {Dims{0, 4, 3, 5}, Dims{2, 0, 3, 5}, Dims{2, 4, 0, 5}})
        check_case(dtype, empty, tokens, Base::dense, Target::other, 0);
    }
  }
}

TEST(WriteColumns, RefusesGaps) {
  KernelTest t;
  t.step.op = &write_columns_op;
  const Type type{DType::f32, {2, 4, 3}};
  t.input(type, random_values(24, 1));
  t.input({DType::i32, {2, 1}}, {0, 1});
  t.step.inputs.push_back(t.view(t.buffer(DType::f32, 24), {DType::f32, {2, 1, 3}}, {6, 6, 2}));
  t.output(type);
  std::string why_not;
  EXPECT_EQ(make_write_columns(t.step, why_not), nullptr);
  EXPECT_NE(why_not.find("gaps"), std::string::npos);
}

}  // namespace
}  // namespace dew::cpu
