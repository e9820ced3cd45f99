// Sums of all elements up to each one.
#include "tests/conformance/template_op.h"

#include "dew/ops/support.h"

namespace dew {
namespace {

// The result's type. A row checks everything that its other cells rely on; each refusal cites a
// constraint, which docs/ops.md lists and constraints_test.cc provokes. (Here RED-1 stands in for a
// number of the op's own.)
std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("running_sum", "x", in);
  check.attrs<NoAttrs>(attrs);
  if (in[0].rank() == 0 || !is_float(in[0].dtype))
    check.refuse("RED-1", "x must be floats [.., n]");
  return {in[0]};
}

// Rows are independent; the summed dimension stays whole. Sums are linear: a partial x gives a
// partial y.
FactorRule factors(const Attrs&, Types operands, Types results) {
  const std::string rows = letters(operands[0].rank() - 1);
  return factor_rule(rows + " n -> " + rows + " n | norep n | linear each 0", operands, results);
}

// The meaning, in the most obvious way. No optimisation here, ever: this is what kernels are judged
// by.
std::vector<Array> reference(const Attrs&, std::span<const Array> x, Types results) {
  Array y(results[0].shape);
  for_each_index(y.shape, [&](const Dims& i) {
    Dims j = i;
    for (j.back() = 0; j.back() <= i.back(); ++j.back()) at(y, i) += at(x[0], j);
  });
  return {std::move(y)};
}

// Element i is part of all sums from i on: dx[i] = g[i] + .. + g[n-1] = total - running_sum(g)[i] +
// g[i]. Built from ops, so that it can be split, planned and differentiated like everything else;
// `fit` gives it the dtype that x's cotangent must have. (Integer operands would get an invalid
// Value.)
std::vector<Value> vjp(const VjpArgs& args) {
  const Value g = args.cotangents[0];
  const std::int64_t last = g.type().rank() - 1;
  const Value total = broadcast(reduce_sum(g, {last}), g.shape(), counting(last));
  return {fit(args.operands[0], total - running_sum(g) + g)};
}

}  // namespace

// op_row refuses, when compiling, a row without name, infer, factors or reference. This op needs no
// `localize`, since its attributes hold no sizes, and has no trait.
constinit const OpDef running_sum_op = op_row({.name = "running_sum",
                                               .infer = infer,
                                               .factors = factors,
                                               .reference = reference,
                                               .vjp = vjp});

Value running_sum(Value x) { return x.program->add1(running_sum_op, {x}); }

void sample_running_sum(SampleMaker& m) {
  const int rank = static_cast<int>(m.integer(1, 3));
  m.result(running_sum(m.values(m.shape(rank))));
}

}  // namespace dew
