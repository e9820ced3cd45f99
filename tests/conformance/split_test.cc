// The split test: for every factor of every op that may be split, the op on parts of its operands,
// joined, equals the op on the whole. Joining is concatenation where a result has the factor, and a
// sum where it lacks it.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/conformance/by_op.h"
#include "tests/effort.h"

namespace dew {
namespace {

// One call of an op: what a node needs to be run anywhere.
struct Call {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Type> operand_types, result_types;
  std::vector<Array> operands;

  std::vector<Array> run() const { return op->reference(attrs, operands, result_types); }
};

Call call_of(const Sample& sample) {
  const Program& p = sample.program;
  const Node& node = p.nodes().back();
  Call call{.op = node.op,
            .attrs = node.attrs,
            .operand_types = {},
            .result_types = {},
            .operands = sample.inputs};
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    EXPECT_EQ(node.operands[i], p.inputs()[i]) << "operands of the op are the program's inputs";
    call.operand_types.push_back(p.values()[static_cast<std::size_t>(node.operands[i])].type);
  }
  for (int i = 0; i < node.result_count; ++i) {
    call.result_types.push_back(p.values()[static_cast<std::size_t>(node.first_result + i)].type);
  }
  return call;
}

struct Part {
  const FactorRule& rule;
  int factor;
  std::int64_t parts, number;

  std::int64_t size() const { return rule.sizes[static_cast<std::size_t>(factor)] / parts; }
  std::int64_t first() const { return number * size(); }
};

// Where the factor lies in an array: each dimension that has it is (outer, factor, inner) in
// row-major order.
struct Strip {
  std::size_t dim;
  std::int64_t inner;  // product of the minor factors of that dimension
};

std::vector<Strip> strips(const FactorRule::DimFactors& dims, const Part& part) {
  std::vector<Strip> result;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const auto found = std::ranges::find(dims[d], part.factor);
    if (found == dims[d].end()) continue;
    std::int64_t inner = 1;
    for (auto f = found + 1; f != dims[d].end(); ++f)
      inner *= part.rule.sizes[static_cast<std::size_t>(*f)];
    result.push_back({d, inner});
  }
  return result;
}

Dims local_shape(Dims shape, const FactorRule::DimFactors& dims, const Part& part) {
  for (const Strip& s : strips(dims, part)) shape[s.dim] /= part.parts;
  return shape;
}

// The place in the whole of an element of the part.
Dims global_index(Dims local, const FactorRule::DimFactors& dims, const Part& part) {
  for (const Strip& s : strips(dims, part)) {
    const std::int64_t i = local[s.dim], inner = i % s.inner, middle = i / s.inner % part.size();
    const std::int64_t outer = i / s.inner / part.size();
    local[s.dim] = (outer * part.size() * part.parts + part.first() + middle) * s.inner + inner;
  }
  return local;
}

double& element(Array& array, const Dims& index) {
  const Dims strides = row_major_strides(array.shape);
  std::int64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return array.data[static_cast<std::size_t>(at)];
}

Array cut(Array whole, const FactorRule::DimFactors& dims, const Part& part) {
  Array local(local_shape(whole.shape, dims, part));
  for_each_index(local.shape, [&](const Dims& i) {
    element(local, i) = element(whole, global_index(i, dims, part));
  });
  return local;
}

// The whole result gets the part's elements: placed where it has the factor, else added.
void join(Array& whole, Array local, const FactorRule::DimFactors& dims, const Part& part) {
  for_each_index(local.shape, [&](const Dims& i) {
    element(whole, global_index(i, dims, part)) += element(local, i);
  });
}

bool lacks(const FactorRule& rule, int factor) {
  for (std::size_t r = 0; r < rule.results.size(); ++r) {
    if (!rule.result_has(static_cast<int>(r), factor)) return true;
  }
  return false;
}

Call local_call(const Call& whole, const Part& part) {
  Call local{.op = whole.op,
             .attrs = whole.attrs,
             .operand_types = whole.operand_types,
             .result_types = whole.result_types,
             .operands = {}};
  for (std::size_t i = 0; i < whole.operands.size(); ++i) {
    const auto& dims = part.rule.operands[i];
    local.operands.push_back(cut(whole.operands[i], dims, part));
    local.operand_types[i].shape = local.operands[i].shape;
    std::vector<double>& data = local.operands[i].data;
    const bool indices =
        std::ranges::count(part.rule.index, std::pair(part.factor, static_cast<int>(i))) > 0;
    for (double& x : data) x -= indices ? static_cast<double>(part.first()) : 0.0;
    const bool once =
        std::ranges::count(part.rule.once, static_cast<int>(i)) > 0 && strips(dims, part).empty();
    if (once && part.number > 0 && lacks(part.rule, part.factor)) std::ranges::fill(data, 0.0);
  }
  for (std::size_t r = 0; r < whole.result_types.size(); ++r) {
    local.result_types[r].shape =
        local_shape(whole.result_types[r].shape, part.rule.results[r], part);
  }
  if (whole.op->localize != nullptr)
    local.attrs = whole.op->localize(whole.attrs, local.result_types);
  EXPECT_EQ(whole.op->infer(local.attrs, local.operand_types), local.result_types);
  return local;
}

void expect_equal(const Array& found, const Array& expected) {
  ASSERT_EQ(found.shape, expected.shape);
  for (std::size_t i = 0; i < found.data.size(); ++i) {
    const double a = found.data[i], b = expected.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_NEAR(a, b, 1e-11 * std::max(1.0, std::fabs(b))) << "element " << i;
  }
}

void check_split(const Call& whole, const FactorRule& rule, int factor, std::int64_t parts) {
  SCOPED_TRACE("factor " + std::string(1, rule.names[static_cast<std::size_t>(factor)]) + " in " +
               std::to_string(parts));
  std::vector<Array> joined;
  for (const Type& type : whole.result_types) joined.emplace_back(type.shape);
  for (std::int64_t number = 0; number < parts; ++number) {
    const Part part{rule, factor, parts, number};
    const std::vector<Array> results = local_call(whole, part).run();
    for (std::size_t r = 0; r < results.size(); ++r)
      join(joined[r], results[r], rule.results[r], part);
  }
  const std::vector<Array> expected = whole.run();
  for (std::size_t r = 0; r < joined.size(); ++r) expect_equal(joined[r], expected[r]);
}

// Factors over which the op communicates itself: parts alone do not make the whole. Each has a test
// of its own below.
bool is_inner(const FactorRule& rule, int factor) {
  return std::ranges::any_of(rule.inner,
                             [factor](const auto& pair) { return pair.first == factor; });
}
const std::map<std::string, std::set<char>> kInner = {{"head_loss", {'v'}}};

void check_shapes(const FactorRule& rule, const Call& call) {
  const auto check = [&](const FactorRule::DimFactors& dims, const Type& type) {
    ASSERT_EQ(dims.size(), type.shape.size());
    for (std::size_t d = 0; d < dims.size(); ++d) {
      std::int64_t product = 1;
      for (int f : dims[d]) product *= rule.sizes[static_cast<std::size_t>(f)];
      EXPECT_EQ(product, type.shape[d]);
    }
  };
  ASSERT_EQ(rule.operands.size(), call.operand_types.size());
  ASSERT_EQ(rule.results.size(), call.result_types.size());
  for (std::size_t i = 0; i < rule.operands.size(); ++i)
    check(rule.operands[i], call.operand_types[i]);
  for (std::size_t i = 0; i < rule.results.size(); ++i)
    check(rule.results[i], call.result_types[i]);
}

// How a factor may be treated: nothing is said of factors that stay whole.
enum class Use { whole, inner, split };

Use use_of(const FactorRule& rule, int factor) {
  if (std::ranges::find(rule.norep, factor) != rule.norep.end()) return Use::whole;
  return is_inner(rule, factor) ? Use::inner : Use::split;
}

class Split : public ByOp {};
DEW_FOR_EVERY_OP(Split, samples_and_template());

TEST_P(Split, PartsMakeTheWhole) {
  const OpDef& op = *GetParam().op;
  if (op.factors == nullptr) {
    EXPECT_EQ(&op, &scan_op);
    GTEST_SKIP() << "the body has the factors";
  }
  int splits = 0;
  bool splittable = false;
  std::set<char> inner;
  for_samples(GetParam(), effort(60), {}, [&](const Sample& sample) {
    const Call call = call_of(sample);
    const FactorRule rule = op.factors(call.attrs, call.operand_types, call.result_types);
    check_shapes(rule, call);
    for (int factor = 0; factor < static_cast<int>(rule.sizes.size()); ++factor) {
      const Use use = use_of(rule, factor);
      if (use == Use::inner) inner.insert(rule.names[static_cast<std::size_t>(factor)]);
      if (use != Use::split) continue;
      splittable = true;
      for (std::int64_t parts : {2, 3, 4}) {
        const std::int64_t size = rule.sizes[static_cast<std::size_t>(factor)];
        if (size == 0 || size % parts != 0) continue;
        check_split(call, rule, factor, parts);
        ++splits;
      }
    }
  });
  EXPECT_EQ(splits > 0, splittable) << "no sample had a size that could be split";
  const auto expected = kInner.find(op.name);
  EXPECT_EQ(inner, expected == kInner.end() ? std::set<char>{} : expected->second);
}

// One token, since sums over tokens would hide the logit of a token's label.
void one_token(SampleMaker& m) {
  const Value h = m.values({1, 1, m.size()});
  const Value table = m.values({2 * m.integer(1, 4), h.dim(2)});
  const Value label = m.integers({1, 1}, 0, table.dim(0) - 1);
  const HeadAttrs attrs{.z_loss = 0.1, .softcap = m.chance(0.5) ? 2.0 : 0.0, .gradients = false};
  const HeadLoss loss = head_loss(h, table, label, m.constants_f32({1, 1}, 0.5, 2), attrs);
  for (Value result : {loss.loss, loss.nll, loss.correct, loss.lse}) m.result(result, false);
}

// head_loss over parts of the vocabulary: what the op has to exchange is lse and the label's logit
// of each token.
TEST(SplitInner, HeadLossOverVocabulary) {
  constexpr std::int64_t kParts = 2;
  for_samples({&head_loss_op, one_token}, 20, {}, [&](const Sample& sample) {
    const Call call = call_of(sample);
    const FactorRule rule = call.op->factors(call.attrs, call.operand_types, call.result_types);
    const auto v = static_cast<int>(std::ranges::find(rule.names, 'v') - rule.names.begin());
    const double weight = sample.inputs[3].data[0];
    double exponentials = 0, label_logit = 0;
    for (std::int64_t number = 0; number < kParts; ++number) {
      const std::vector<Array> results = local_call(call, {rule, v, kParts, number}).run();
      const double lse = results[3].data[0];
      exponentials += std::exp(lse);
      label_logit += lse - results[1].data[0] / weight;
    }
    const std::vector<Array> whole = call.run();
    EXPECT_NEAR(whole[3].data[0], std::log(exponentials), 1e-11);
    EXPECT_NEAR(whole[1].data[0], weight * (std::log(exponentials) - label_logit), 1e-11);
  });
}

}  // namespace
}  // namespace dew
