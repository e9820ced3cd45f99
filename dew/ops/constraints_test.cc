// Each numbered constraint of docs/ops.md is refused by its number, and each has a test here.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "dew/base/error.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

using testing::Test;

// Inputs by type, so that a row below is one line.
struct Maker {
  Program program{"test"};
  int count = 0;

  Value of(DType dtype, Dims shape) {
    return program.input("x" + std::to_string(count++), {dtype, std::move(shape)});
  }
  Value f(Dims shape) { return of(DType::f32, std::move(shape)); }
  Value h(Dims shape) { return of(DType::bf16, std::move(shape)); }
  Value i(Dims shape) { return of(DType::i32, std::move(shape)); }
  Value b(Dims shape) { return of(DType::pred, std::move(shape)); }
  void add(const OpDef& op, std::vector<Value> operands, Attrs attrs) {
    program.add(op, operands, std::move(attrs));
  }

  Counters counters(std::int64_t rows, std::int64_t columns) {
    return {of(DType::u32, {2}), i({}), i({}), i({rows}), i({columns})};
  }
  AttentionInputs attention_inputs() {  // b 2, t 3, s 4, h 4, k 2, d 6
    return {f({2, 3, 4, 6}), f({2, 4, 2, 6}), f({2, 4, 2, 6}), i({2, 3}),
            i({2, 4}),       i({2, 3}),       i({2, 4}),       i({})};
  }
};

struct Refusal {
  const char* constraint;
  void (*build)(Maker&);
};

DotDims dot_dims(Dims lhs_contract, Dims rhs_contract, DType out = DType::f32) {
  return {{}, {}, std::move(lhs_contract), std::move(rhs_contract), out};
}

// Attention with one operand replaced by another type.
template <Value AttentionInputs::*Operand>
void attention_with(Maker& m, Value replacement) {
  AttentionInputs in = m.attention_inputs();
  in.*Operand = replacement;
  attention(in, {});
}

void attention_grad_with(Maker& m, Type lse, Type delta, Type d_o) {
  attention_grad(m.attention_inputs(), m.of(lse.dtype, lse.shape), m.of(delta.dtype, delta.shape),
                 m.of(d_o.dtype, d_o.shape), {});
}

std::vector<Value> sgd_operands(Maker& m) {
  return {m.f({4}), m.f({4}), m.f({4}), m.f({}), m.f({}), m.b({})};
}

void sgd_with(Maker& m, std::size_t operand, Value replacement) {
  std::vector<Value> operands = sgd_operands(m);
  operands[operand] = replacement;
  m.add(sgd_op, operands, UpdateAttrs{});
}

// x = x + 1 with one input and one output.
std::shared_ptr<const Program> body(DType out = DType::f32) {
  auto program = std::make_shared<Program>("body");
  const Value x = program->input("x", {DType::f32, {2}});
  program->output("x", convert(x + 1.0, out));
  return program;
}

GroupAttrs group(Dims dims, std::int64_t members) {
  return {.atoms = {0}, .members = members, .dims = std::move(dims), .to = {}};
}

const std::vector<Refusal> kRefusals = {
    {"OP-1", [](Maker& m) { m.add(add_op, {m.f({})}, NoAttrs{}); }},
    {"OP-1",
     [](Maker& m) {
       m.add(rope_op, {m.f({}), m.f({}), m.f({}), m.f({})}, RopeDims{});
     }},
    {"OP-1", [](Maker&) { concatenate({}, 0); }},
    {"OP-1", [](Maker&) { scan(body(), {}, {}, {}, 1); }},
    {"OP-2",
     [](Maker& m) {
       m.add(dot_op, {m.f({1}), m.f({1})}, Axes{{0}});
     }},
    {"EW-1", [](Maker& m) { add(m.f({2}), m.h({2})); }},
    {"EW-1", [](Maker& m) { select(m.b({2}), m.f({2}), m.h({2})); }},
    {"EW-2",
     [](Maker& m) {
       mul(m.f({2, 3}), m.f({3, 2}));
     }},
    {"EW-2", [](Maker& m) { select(m.b({3}), m.f({}), m.f({2})); }},
    {"EW-3", [](Maker& m) { exp(m.i({2})); }},
    {"EW-3", [](Maker& m) { add(m.b({2}), m.b({2})); }},
    {"EW-3", [](Maker& m) { logical_not(m.f({2})); }},
    {"EW-4", [](Maker& m) { select(m.i({2}), m.f({2}), m.f({2})); }},
    {"DOT-1", [](Maker& m) { dot(m.f({2}), m.h({2}), dot_dims({0}, {0})); }},
    {"DOT-1", [](Maker& m) { dot(m.i({2}), m.i({2}), dot_dims({0}, {0})); }},
    {"DOT-2", [](Maker& m) { dot(m.f({2}), m.f({2}), dot_dims({1}, {0})); }},
    {"DOT-2",
     [](Maker& m) {
       dot(m.f({2, 2}), m.f({2, 2}), {{0}, {0}, {0}, {1}, DType::f32});
     }},
    {"DOT-3",
     [](Maker& m) {
       dot(m.f({8, 512}), m.f({256, 64}), dot_dims({1}, {0}));
     }},
    {"DOT-3",
     [](Maker& m) {
       dot(m.f({8, 8}), m.f({8, 8}), dot_dims({0, 1}, {0}));
     }},
    {"DOT-4",
     [](Maker& m) {
       dot(m.f({2, 3}), m.f({4, 3}), {{0}, {0}, {1}, {1}, DType::f32});
     }},
    {"DOT-5", [](Maker& m) { dot(m.f({2}), m.f({2}), dot_dims({0}, {0}, DType::bf16)); }},
    {"RED-1",
     [](Maker& m) {
       reduce_sum(m.f({2}), {0, 0});
     }},
    {"RED-1", [](Maker& m) { reduce_max(m.f({2}), {-1}); }},
    {"RED-2", [](Maker& m) { reduce_sum(m.b({2}), {0}); }},
    {"ROW-1", [](Maker& m) { row_dot(m.f({2}), m.h({2})); }},
    {"ROW-1", [](Maker& m) { row_dot(m.f({2}), m.f({3})); }},
    {"ROW-2", [](Maker& m) { row_dot(m.f({}), m.f({})); }},
    {"BRO-1",
     [](Maker& m) {
       broadcast(m.f({2}), {2, 3}, {});
     }},
    {"BRO-2",
     [](Maker& m) {
       broadcast(m.f({2, 2}), {2, 2}, {1, 0});
     }},
    {"BRO-2", [](Maker& m) { broadcast(m.f({2}), {2}, {1}); }},
    {"BRO-3", [](Maker& m) { broadcast(m.f({1}), {2}, {0}); }},
    {"BRO-4", [](Maker& m) { broadcast(m.f({}), {-2}, {}); }},
    {"RES-1",
     [](Maker& m) {
       m.add(reshape_op, {m.f({2})}, NewShape{{2}, {0}});
     }},
    {"RES-2",
     [](Maker& m) {
       reshape(m.f({4}), {-2, -2});
     }},
    {"RES-3", [](Maker& m) { reshape(m.f({4}), {5}); }},
    {"TRA-1",
     [](Maker& m) {
       transpose(m.f({2, 2}), {0, 0});
     }},
    {"TRA-2",
     [](Maker& m) {
       transpose(m.f({2, 2}), {1});
     }},
    {"SLI-1",
     [](Maker& m) {
       slice(m.f({2, 2}), {0}, {1});
     }},
    {"SLI-2", [](Maker& m) { slice(m.f({2}), {0}, {3}); }},
    {"SLI-2", [](Maker& m) { slice(m.f({2}), {2}, {1}); }},
    {"PAD-1",
     [](Maker& m) {
       pad(m.f({2, 2}), {0}, {1});
     }},
    {"PAD-2", [](Maker& m) { pad(m.f({2}), {0}, {-1}); }},
    {"CON-1", [](Maker& m) { concatenate(std::vector{m.f({2})}, 1); }},
    {"CON-1", [](Maker& m) { m.add(concatenate_op, {m.f({2})}, Axes{{}}); }},
    {"CON-2",
     [](Maker& m) {
       concatenate(std::vector{m.f({2}), m.h({2})}, 0);
     }},
    {"CON-3",
     [](Maker& m) {
       concatenate(std::vector{m.f({2, 3}), m.f({2, 4})}, 0);
     }},
    {"CST-1",
     [](Maker& m) {
       constant(m.program, {DType::f32, {-1}}, 0);
     }},
    {"CST-2",
     [](Maker& m) {
       constant(m.program, {DType::i32, {}}, 0.5);
     }},
    {"CST-3",
     [](Maker& m) {
       iota(m.program, {DType::pred, {2}}, 0);
     }},
    {"CST-4",
     [](Maker& m) {
       iota(m.program, {DType::i32, {2}}, 1);
     }},
    {"GAT-1",
     [](Maker& m) {
       gather_rows(m.f({2, 3, 4}), m.i({2}));
     }},
    {"GAT-2",
     [](Maker& m) {
       gather_rows(m.f({2, 3}), m.f({2}));
     }},
    {"GAT-3",
     [](Maker& m) {
       scatter_add_rows(m.h({2, 3}), m.i({2}), m.h({2, 3}));
     }},
    {"GAT-4",
     [](Maker& m) {
       scatter_add_rows(m.f({2, 3}), m.i({2}), m.i({2, 3}));
     }},
    {"GAT-5",
     [](Maker& m) {
       scatter_add_rows(m.f({2, 3}), m.i({2}), m.f({2, 4}));
     }},
    {"WRI-1",
     [](Maker& m) {
       write_columns(m.f({2}), m.i({2, 3}), m.f({2, 3}));
     }},
    {"WRI-2",
     [](Maker& m) {
       write_columns(m.f({2, 4, 5}), m.i({3}), m.f({2, 3, 5}));
     }},
    {"WRI-3",
     [](Maker& m) {
       write_columns(m.f({2, 4, 5}), m.i({2, 3}), m.h({2, 3, 5}));
     }},
    {"RND-1",
     [](Maker& m) {
       Counters c = m.counters(2, 3);
       c.key = m.i({2});
       random_bits(c, 0, {});
     }},
    {"RND-2",
     [](Maker& m) {
       Counters c = m.counters(2, 3);
       c.step = m.i({1});
       random_bits(c, 0, {});
     }},
    {"RND-3",
     [](Maker& m) {
       Counters c = m.counters(2, 3);
       c.columns = m.i({2, 3});
       random_bits(c, 0, {});
     }},
    {"RND-4", [](Maker& m) { random_bits(m.counters(2, 3), 0, {-1}); }},
    {"RND-5",
     [](Maker& m) {
       dropout(m.i({2, 3}), m.counters(2, 3), 0, 0.1);
     }},
    {"RND-6",
     [](Maker& m) {
       dropout(m.f({2, 4}), m.counters(2, 3), 0, 0.1);
     }},
    {"RND-6", [](Maker& m) { dropout(m.f({2}), m.counters(2, 3), 0, 0.1); }},
    {"RND-7",
     [](Maker& m) {
       dropout(m.f({2, 3}), m.counters(2, 3), 0, 1.0);
     }},
    {"NRM-1", [](Maker& m) { rms_norm(m.f({}), m.f({1}), 0); }},
    {"NRM-1", [](Maker& m) { rms_norm(m.i({2}), m.f({2}), 0); }},
    {"NRM-2",
     [](Maker& m) {
       rms_norm(m.h({2, 3}), m.h({3}), 0);
     }},
    {"NRM-2",
     [](Maker& m) {
       layer_norm(m.f({2, 3}), m.f({3}), m.f({2}), 0);
     }},
    {"NRM-3",
     [](Maker& m) {
       rms_norm(m.f({2, 3}), m.f({3}), -1);
     }},
    {"NRM-4",
     [](Maker& m) {
       m.add(rms_norm_grad_op, {m.f({2, 3}), m.f({3}), m.f({3}), m.f({2, 3})}, NoAttrs{});
     }},
    {"NRM-5",
     [](Maker& m) {
       m.add(rms_norm_grad_op, {m.f({2, 3}), m.f({3}), m.f({2}), m.h({2, 3})}, NoAttrs{});
     }},
    {"ROP-1",
     [](Maker& m) {
       rope(m.f({1, 2, 3, 5}), m.i({1, 2}), m.f({}), {});
     }},
    {"ROP-2",
     [](Maker& m) {
       rope(m.f({1, 2, 3, 4}), m.i({1, 3}), m.f({}), {});
     }},
    {"ROP-3",
     [](Maker& m) {
       rope(m.f({1, 2, 3, 4}), m.i({1, 2}), m.f({1}), {});
     }},
    {"ROP-4",
     [](Maker& m) {
       RopeDims dims;
       dims.scaling = "yarn";
       rope(m.f({1, 2, 3, 4}), m.i({1, 2}), m.f({}), dims);
     }},
    {"ROP-5",
     [](Maker& m) {
       RopeDims dims;
       dims.scaling = "linear";
       dims.factor = 0;
       rope(m.f({1, 2, 3, 4}), m.i({1, 2}), m.f({}), dims);
     }},
    {"ROP-6",
     [](Maker& m) {
       RopeDims dims;
       dims.scaling = "llama3";
       rope(m.f({1, 2, 3, 4}), m.i({1, 2}), m.f({}), dims);
     }},
    {"ATT-1",
     [](Maker& m) {
       attention_with<&AttentionInputs::q>(m, m.f({2, 3, 4}));
     }},
    {"ATT-2",
     [](Maker& m) {
       attention_with<&AttentionInputs::v>(m, m.f({2, 5, 2, 6}));
     }},
    {"ATT-2",
     [](Maker& m) {
       attention_with<&AttentionInputs::q>(m, m.h({2, 3, 4, 6}));
     }},
    {"ATT-3",
     [](Maker& m) {
       attention_with<&AttentionInputs::q>(m, m.f({2, 3, 4, 8}));
     }},
    {"ATT-4",
     [](Maker& m) {
       attention_with<&AttentionInputs::q>(m, m.f({2, 3, 3, 6}));
     }},
    {"ATT-5",
     [](Maker& m) {
       attention_with<&AttentionInputs::k_positions>(m, m.i({2, 3}));
     }},
    {"ATT-6", [](Maker& m) { attention_with<&AttentionInputs::window>(m, m.f({})); }},
    {"ATT-7",
     [](Maker& m) {
       attention(m.attention_inputs(), {.scale = 1, .softcap = -1, .causal = true});
     }},
    {"ATT-8",
     [](Maker& m) {
       attention_grad_with(m, {DType::f32, {2, 3, 4}}, {DType::f32, {2, 3}},
                           {DType::f32, {2, 3, 4, 6}});
     }},
    {"ATT-9",
     [](Maker& m) {
       attention_grad_with(m, {DType::f32, {2, 3, 4}}, {DType::f32, {2, 3, 4}},
                           {DType::bf16, {2, 3, 4, 6}});
     }},
    {"HEA-1",
     [](Maker& m) {
       head_loss(m.f({2, 3}), m.f({5, 3}), m.i({2}), m.f({2}), {});
     }},
    {"HEA-2",
     [](Maker& m) {
       head_loss(m.f({1, 2, 3}), m.f({5, 4}), m.i({1, 2}), m.f({1, 2}), {});
     }},
    {"HEA-3",
     [](Maker& m) {
       head_loss(m.f({1, 2, 3}), m.f({5, 3}), m.f({1, 2}), m.f({1, 2}), {});
     }},
    {"HEA-4",
     [](Maker& m) {
       head_loss(m.f({1, 2, 3}), m.f({5, 3}), m.i({1, 2}), m.f({1, 3}), {});
     }},
    {"HEA-5",
     [](Maker& m) {
       head_loss(m.f({1, 2, 3}), m.f({5, 3}), m.i({1, 2}), m.f({1, 2}),
                 {.z_loss = 0, .softcap = -1, .gradients = false});
     }},
    {"UPD-1", [](Maker& m) { sgd_with(m, 0, m.h({4})); }},
    {"UPD-2", [](Maker& m) { sgd_with(m, 2, m.h({4})); }},
    {"UPD-3", [](Maker& m) { sgd_with(m, 3, m.f({1})); }},
    {"UPD-4", [](Maker& m) { sgd_with(m, 5, m.f({})); }},
    {"UPD-5", [](Maker& m) { sum_squares(m.i({2})); }},
    {"SCA-1",
     [](Maker& m) { m.add(scan_op, {m.f({2})}, ScanAttrs{.body = nullptr, .carries = 1}); }},
    {"SCA-2",
     [](Maker& m) {
       m.add(scan_op, {m.f({2})}, ScanAttrs{.body = body(), .carries = 1, .length = -1});
     }},
    {"SCA-3",
     [](Maker& m) {
       scan(body(), std::vector{m.f({2}), m.f({2})}, {}, {}, 1);
     }},
    {"SCA-4",
     [](Maker& m) {
       auto silent = std::make_shared<Program>("silent");
       silent->input("x", {DType::f32, {2}});
       scan(silent, std::vector{m.f({2})}, {}, {}, 1);
     }},
    {"SCA-5", [](Maker& m) { scan(body(), std::vector{m.f({3})}, {}, {}, 1); }},
    {"SCA-5",
     [](Maker& m) {
       scan(body(), {}, std::vector{m.f({4, 2})}, {}, 3);
     }},
    {"SCA-6", [](Maker& m) { scan(body(DType::bf16), std::vector{m.f({2})}, {}, {}, 1); }},
    {"COL-1", [](Maker& m) { all_reduce(m.f({2}), {}); }},
    {"COL-2", [](Maker& m) { all_gather(m.f({2}), group({}, 2)); }},
    {"COL-2", [](Maker& m) { all_reduce(m.f({2}), group({0}, 2)); }},
    {"COL-2", [](Maker& m) { all_to_all(m.f({2}), group({0}, 2)); }},
    {"COL-3", [](Maker& m) { reduce_scatter(m.f({3}), group({0}, 2)); }},
    {"COL-3", [](Maker& m) { all_to_all(m.f({2, 3}), group({0, 1}, 2)); }},
    {"COL-4", [](Maker& m) { own_part(m.f({2}), group({1}, 2)); }},
    {"COL-4", [](Maker& m) { all_to_all(m.f({2, 2}), group({1, 1}, 2)); }},
};

TEST(Constraints, AreRefusedByNumber) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.constraint);
    Maker maker;
    try {
      refusal.build(maker);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
      EXPECT_NE(std::string(error.what()).find(std::string(": ") + refusal.constraint + " "),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Constraints, MessageNamesOperandsAndSizes) {
  Maker m;
  try {
    dot(m.f({8, 512}), m.f({256, 64}), dot_dims({1}, {0}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "dot: DOT-3 contracted sizes differ: lhs dim 1 = 512, rhs dim 0 = 256 (lhs "
                 "f32[8,512], rhs f32[256,64])");
  }
}

std::string documentation() {
  std::ifstream file("docs/ops.md");
  EXPECT_TRUE(file) << "docs/ops.md is read from the repository's root";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Constraints, DocumentedAndTestedAreTheSame) {
  std::set<std::string> documented, tested;
  for (const Refusal& refusal : kRefusals) tested.insert(refusal.constraint);
  const std::string text = documentation();
  const std::regex row("\\| ([A-Z]+-[0-9]+) \\|");
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it)
    documented.insert((*it)[1]);
  EXPECT_EQ(documented, tested);
}

TEST(Constraints, EveryOpIsDocumented) {
  const std::string text = documentation();
  for (const OpDef* op : all_ops()) {
    EXPECT_NE(text.find(std::string("`") + op->name + "`"), std::string::npos) << op->name;
  }
}

}  // namespace
}  // namespace dew
