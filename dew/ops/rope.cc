// Rotary position embedding.
#include <cmath>
#include <numbers>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

void check_scaling(const Checks& check, const RopeDims& dims) {
  if (dims.scaling != "none" && dims.scaling != "linear" && dims.scaling != "llama3") {
    check.refuse("ROP-4", format("scaling \"{}\" is not none, linear or llama3", dims.scaling));
  }
  if (dims.scaling != "none" && !(dims.factor > 0.0))
    check.refuse("ROP-5", format("factor {} is not positive", dims.factor));
  const bool llama3 = dims.original_max_seq_len > 0 && dims.low_freq_factor > 0.0 &&
                      dims.high_freq_factor > dims.low_freq_factor;
  if (dims.scaling == "llama3" && !llama3) {
    check.refuse("ROP-6",
                 format("llama3 needs 0 < low_freq_factor {} < high_freq_factor {} and "
                        "original_max_seq_len {} > 0",
                        dims.low_freq_factor, dims.high_freq_factor, dims.original_max_seq_len));
  }
}

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("rope", "x positions base", in);
  const auto& dims = check.attrs<RopeDims>(attrs);
  if (in[0].rank() != 4 || !is_float(in[0].dtype) || in[0].shape[3] % 2 != 0) {
    check.refuse("ROP-1", "x must be floats [b, s, h, d] with even d");
  }
  check.is("ROP-2", 1, {DType::i32, {in[0].shape[0], in[0].shape[1]}});
  check.is("ROP-3", 2, {DType::f32, {}});
  check_scaling(check, dims);
  return {in[0]};
}

FactorRule factors(const Attrs&, Types operands, Types results) {
  return factor_rule("b s h d, b s, -> b s h d | norep d", operands, results);
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> in, Types results) {
  const auto& dims = std::get<RopeDims>(attrs);
  const Array& x = in[0];
  const std::int64_t d = x.shape[3];
  Array y(results[0].shape);
  for_each_index(Dims{x.shape[0], x.shape[1], x.shape[2], d / 2}, [&](const Dims& i) {
    const double turn = at(in[1], i) * rope_frequency(dims, in[2].data[0], i[3], d);
    const double angle = dims.inverse ? -turn : turn;
    const Dims j{i[0], i[1], i[2], i[3] + d / 2};
    at(y, i) = at(x, i) * std::cos(angle) - at(x, j) * std::sin(angle);
    at(y, j) = at(x, j) * std::cos(angle) + at(x, i) * std::sin(angle);
  });
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  RopeDims back = std::get<RopeDims>(args.attrs);
  back.inverse = !back.inverse;
  return {fit(args.operands[0], rope(args.cotangents[0], args.operands[1], args.operands[2], back)),
          {},
          {}};
}

}  // namespace

double rope_frequency(const RopeDims& dims, double base, std::int64_t pair, std::int64_t d) {
  const double plain = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(d));
  if (dims.scaling == "linear") return plain / dims.factor;
  if (dims.scaling != "llama3") return plain;
  const double turns =
      static_cast<double>(dims.original_max_seq_len) * plain / (2.0 * std::numbers::pi);
  if (turns < dims.low_freq_factor) return plain / dims.factor;
  if (turns > dims.high_freq_factor) return plain;
  const double blend =
      (turns - dims.low_freq_factor) / (dims.high_freq_factor - dims.low_freq_factor);
  return (1.0 - blend) * plain / dims.factor + blend * plain;
}

constinit const OpDef rope_op = op_row(
    {.name = "rope", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});

Value rope(Value x, Value positions, Value base, RopeDims dims) {
  return x.program->add1(rope_op, {x, positions, base}, std::move(dims));
}

}  // namespace dew
