#include "dew/ir/program.h"

#include <gtest/gtest.h>

#include "dew/base/error.h"
#include "dew/ir/interpret.h"
#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

Program example() {
  Program p("example \"quoted\"");
  const Value x = p.input("x", {DType::bf16, {2, 3}});
  const Value w = p.input("w", {DType::f32, {3, 4}}, true);
  const Value y = dot(convert(x, DType::f32), w,
                      {.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}});
  p.pin(y, {"activation_batch", ""});
  p.set_name(y, "kept");
  const Value z = y * 0.1 + 1e-30;
  p.set_hint(z, y.id);
  p.set_like(z, y.id);
  auto body = std::make_shared<Program>("body");
  const Value c = body->input("c", y.type());
  body->output("c", tanh(c));
  body->output("s", reduce_max(c, {0, 1}));
  const Scan s = scan(body, std::vector<Value>{z}, {}, {}, 3);
  p.output("out", s.carries[0]);
  p.output("max", s.stacked[0]);
  return p;
}

TEST(ProgramText, RoundTripIsExact) {
  const std::string text = print(example());
  EXPECT_EQ(print(parse(text, all_ops())), text);
  verify(parse(text, all_ops()));
}

TEST(ProgramText, ErrorsNameLineAndColumn) {
  const std::string text = print(example());
  const auto message = [&](std::string_view from, std::string_view to) {
    std::string broken = text;
    broken.replace(broken.find(from), from.size(), to);
    try {
      parse(broken, all_ops());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("convert", "konvert").find("line 4, column"), std::string::npos)
      << message("convert", "konvert");
  EXPECT_NE(message("f32[2,4]", "f32[2,5]").find("dot gives f32[2,4], not f32[2,5]"),
            std::string::npos);
  EXPECT_NE(message("(%2", "(%77").find("%77 is not defined"), std::string::npos);
  EXPECT_NE(message("lhs_contract=[1]", "lhs_contract=[x]").find("line 5"), std::string::npos);
  EXPECT_NE(message("%4 =", "%9 =").find("numbered in order"), std::string::npos);
  EXPECT_NE(message("bf16[2,3]", "bf16[4294967296,4294967296]").find("elements"),
            std::string::npos);
  EXPECT_NE(message("like=%3", "like=%0").find("like or hint %0"), std::string::npos);
  EXPECT_NE(message("hint=%3", "hint=%99").find("like or hint %99"), std::string::npos);
  for (std::size_t cut = 0; cut + 1 < text.size(); cut += 3) {
    if (text.substr(cut).find_first_not_of(" \n") == std::string::npos) continue;
    EXPECT_THROW(parse(text.substr(0, cut), all_ops()), Error) << cut;
  }
}

TEST(Program, WeightsAndDataPropagate) {
  Program p("bits");
  const Value w = p.input("w", {DType::f32, {2}}, true), x = p.input("x", {DType::f32, {2}});
  EXPECT_TRUE(p.info(w * 2.0).weight);
  EXPECT_FALSE(p.info(w * x).weight);
  EXPECT_FALSE(p.info(constant(p, {DType::f32, {2}}, 1) * 2.0).weight);
  EXPECT_FALSE(p.info(constant(p, {DType::f32, {2}}, 1) * 2.0).data);
}

TEST(Program, NamesAreUniqueAndValuesOwn) {
  Program p("names"), q("other");
  const Value x = p.input("x", {DType::f32, {2}});
  EXPECT_THROW(p.input("x", {DType::f32, {2}}), Error);
  const Value y = q.input("y", {DType::f32, {2}});
  EXPECT_THROW(add(x, y), Error);
  p.output("o", x);
  EXPECT_THROW(p.output("o", x), Error);
}

TEST(Rewrite, DeadCodeAndDuplicatesGo) {
  Program p("dup");
  const Value x = p.input("x", {DType::f32, {3}});
  const Value a = exp(x), b = exp(x);
  tanh(x);
  p.output("y", a + b);
  const Program q = without_dead_code(without_duplicates(p));
  EXPECT_EQ(q.nodes().size(), 2u) << print(q);
  const std::vector<Array> in{Array(Dims{3}, 0.5)};
  EXPECT_EQ(interpret(p, in), interpret(q, in));
}

TEST(Rewrite, AnnotationsComeAlong) {
  const Program p = example();
  const Program q = without_dead_code(p);
  EXPECT_EQ(print(q), print(p));
}

}  // namespace
}  // namespace dew
