// The same elements in row-major order under another shape.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("reshape", "x", in);
  const auto& to = check.attrs<NewShape>(attrs);
  if (!to.dims.empty()) check.refuse("RES-1", "a reshape names no dimensions");
  for (std::int64_t size : to.shape) {
    if (size < 0) check.refuse("RES-2", format("sizes [{}] must not be negative", join(to.shape)));
  }
  if (element_count(to.shape) != in[0].elements()) {
    check.refuse("RES-3", format("{} elements do not make [{}]", in[0].elements(), join(to.shape)));
  }
  return {{in[0].dtype, to.shape}};
}

// Finds the factors of both shapes: walks them side by side; what one dimension has to the other's
// right is a factor, and the remainder goes on with the next dimension. (b, s, h d) -> (b, s, h, d)
// has the factors b, s, h, d.
class Matching {
 public:
  Matching(const Dims& from, const Dims& to) : from_(from), to_(to) {
    rule_.operands.resize(1);
    rule_.results.resize(1);
    rule_.operands[0].resize(from.size());
    rule_.results[0].resize(to.size());
  }

  FactorRule run() {
    while (i_ < from_.size() && j_ < to_.size() && step()) {
    }
    close(from_, i_, left_, rule_.operands[0]);
    close(to_, j_, right_, rule_.results[0]);
    rule_.linear = {0};
    return std::move(rule_);
  }

 private:
  int factor(std::int64_t size) {
    rule_.sizes.push_back(size);
    rule_.names.push_back(static_cast<char>('a' + rule_.names.size() % 26));
    return static_cast<int>(rule_.sizes.size()) - 1;
  }

  // A factor that only one side has (of size one, or of a group that has no common factors) stays
  // whole.
  void alone(std::vector<int>& dim, std::int64_t size) {
    dim.push_back(factor(size));
    rule_.norep.push_back(dim.back());
  }

  // One step; false when the rest cannot be matched: 0 elements, or sizes as in (2, 3) -> (3, 2).
  bool step() {
    const std::int64_t a = from_[i_] / left_,
                       b = to_[j_] / right_;  // what is left of the two current dimensions
    if (a == 0 || b == 0) return a == b && from_[i_] == to_[j_] && match(a);
    if (a == 1) return skip(from_, i_, left_, rule_.operands[0]);
    if (b == 1) return skip(to_, j_, right_, rule_.results[0]);
    if (a % b != 0 && b % a != 0) return false;
    return match(std::min(a, b));
  }

  bool match(std::int64_t size) {
    const int f = factor(size);
    rule_.operands[0][i_].push_back(f);
    rule_.results[0][j_].push_back(f);
    advance(from_, i_, left_, size);
    advance(to_, j_, right_, size);
    return true;
  }

  bool skip(const Dims& sizes, std::size_t& d, std::int64_t& done, FactorRule::DimFactors& dims) {
    if (dims[d].empty()) alone(dims[d], 1);
    advance(sizes, d, done, 1);
    return true;
  }

  static void advance(const Dims& sizes, std::size_t& d, std::int64_t& done, std::int64_t size) {
    done *= size;
    if (done == sizes[d]) {
      ++d;
      done = 1;
    }
  }

  void close(const Dims& sizes, std::size_t d, std::int64_t done, FactorRule::DimFactors& dims) {
    for (; d < sizes.size(); ++d, done = 1) alone(dims[d], sizes[d] / done);
  }

  const Dims &from_, &to_;
  FactorRule rule_;
  std::size_t i_ = 0, j_ = 0;
  std::int64_t left_ = 1,
               right_ = 1;  // product of the factors already found in the current dimensions
};

FactorRule factors(const Attrs&, Types operands, Types results) {
  return Matching(operands[0].shape, results[0].shape).run();
}

std::vector<Array> reference(const Attrs&, std::span<const Array> x, Types results) {
  Array y = x[0];
  y.shape = results[0].shape;
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  return {fit(args.operands[0], reshape(args.cotangents[0], args.operands[0].shape()))};
}

Attrs localize(const Attrs&, Types local_results) { return NewShape{local_results[0].shape, {}}; }

}  // namespace

constinit const OpDef reshape_op = op_row({.name = "reshape",
                                           .infer = infer,
                                           .factors = factors,
                                           .reference = reference,
                                           .vjp = vjp,
                                           .localize = localize,
                                           .traits = kView});

Value reshape(Value x, Dims shape) {
  return x.program->add1(reshape_op, {x}, NewShape{std::move(shape), {}});
}

}  // namespace dew
