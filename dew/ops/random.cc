// Counter-based random numbers: functions of global row and column numbers, so the same on every
// mesh.
#include "dew/base/format.h"
#include "dew/base/rng.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

// Operands first .. first + 4 are key, layer, step, row_ids, columns.
void check_counters(const Checks& check, std::size_t first) {
  check.is("RND-1", first, {DType::u32, {2}});
  check.is("RND-2", first + 1, {DType::i32, {}});
  check.is("RND-2", first + 2, {DType::i32, {}});
  for (std::size_t i : {first + 3, first + 4}) {
    if (check[i].dtype != DType::i32 || check[i].rank() != 1)
      check.refuse("RND-3", "row_ids and columns must be i32 [n]");
  }
}

std::vector<Type> infer_bits(const Attrs& attrs, Types in) {
  const Checks check("random_bits", "key layer step row_ids columns", in);
  const auto& random = check.attrs<RandomAttrs>(attrs);
  check_counters(check, 0);
  Type result{DType::u32, {in[3].shape[0], in[4].shape[0]}};
  for (std::int64_t size : random.shape) {
    if (size < 0)
      check.refuse("RND-4", format("sizes [{}] must not be negative", join(random.shape)));
    result.shape.push_back(size);
  }
  return {result};
}

std::vector<Type> infer_dropout(const Attrs& attrs, Types in) {
  const Checks check("dropout", "x key layer step row_ids columns", in);
  const auto& random = check.attrs<RandomAttrs>(attrs);
  check_counters(check, 1);
  if (!is_float(in[0].dtype)) check.refuse("RND-5", "x must be floats");
  const bool fits =
      in[0].rank() >= 2 && in[0].shape[0] == in[4].shape[0] && in[0].shape[1] == in[5].shape[0];
  if (!fits) check.refuse("RND-6", "x must be [rows, columns, ..]");
  if (!(random.rate >= 0.0 && random.rate < 1.0))
    check.refuse("RND-7", format("rate {} is not in [0, 1)", random.rate));
  return {in[0]};
}

// Rows and columns may be split. The trailing dimensions may not: element j of a part would count
// from another number.
FactorRule factors_bits(const Attrs&, Types operands, Types results) {
  const std::string rest = letters(results[0].rank() - 2);
  return factor_rule("n, , , d, e -> d e " + rest + " | norep n " + rest, operands, results);
}

FactorRule factors_dropout(const Attrs&, Types operands, Types results) {
  const std::string rest = letters(results[0].rank() - 2);
  return factor_rule(
      "d e " + rest + ", n, , , d, e -> d e " + rest + " | linear each 0 | norep n " + rest,
      operands, results);
}

std::uint32_t word_of(double number) {
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(number));
}

// The words of random_bits for an array [rows, columns, ..]; `counters` are its operands.
Array bits(const RandomAttrs& attrs, std::span<const Array> counters, const Dims& shape) {
  const auto number = [&](std::size_t operand, std::int64_t i) {
    return word_of(counters[operand].data[slot(i)]);
  };
  const RandomKey key =
      fold({number(0, 0), number(0, 1)}, static_cast<std::uint32_t>(attrs.purpose), number(1, 0),
           number(2, 0), 0);
  Array result(shape);
  const std::int64_t trailing = element_count(std::span(shape).subspan(2));
  for (std::int64_t r = 0, i = 0; r < shape[0]; ++r) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t j = 0; j < trailing; ++j, ++i) {
        const std::int64_t block = j / 4;
        const auto words =
            philox(key, {word_of(static_cast<double>(block)), number(4, c), number(3, r), 0});
        result.data[slot(i)] = words[slot(j % 4)];
      }
    }
  }
  return result;
}

std::vector<Array> reference_bits(const Attrs& attrs, std::span<const Array> x, Types results) {
  return {bits(std::get<RandomAttrs>(attrs), x, results[0].shape)};
}

std::vector<Array> reference_dropout(const Attrs& attrs, std::span<const Array> x, Types results) {
  const auto& random = std::get<RandomAttrs>(attrs);
  Array y = bits(random, x.subspan(1), results[0].shape);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    const bool kept = uniform(word_of(y.data[i])) >= random.rate;
    y.data[i] = kept ? x[0].data[i] / (1.0 - random.rate) : 0.0;
  }
  return {std::move(y)};
}

// The same mask, made again.
std::vector<Value> vjp_dropout(const VjpArgs& args) {
  const auto& random = std::get<RandomAttrs>(args.attrs);
  const auto& x = args.operands;
  std::vector<Value> gradients(x.size());
  gradients[0] = fit(x[0], dropout(args.cotangents[0], {x[1], x[2], x[3], x[4], x[5]},
                                   random.purpose, random.rate));
  return gradients;
}

Attrs localize_bits(const Attrs& attrs, Types local_results) {
  RandomAttrs random = std::get<RandomAttrs>(attrs);
  random.shape.assign(local_results[0].shape.begin() + 2, local_results[0].shape.end());
  return random;
}

}  // namespace

constinit const OpDef random_bits_op = op_row({.name = "random_bits",
                                               .infer = infer_bits,
                                               .factors = factors_bits,
                                               .reference = reference_bits,
                                               .localize = localize_bits,
                                               .traits = kRandom});
constinit const OpDef dropout_op = op_row({.name = "dropout",
                                           .infer = infer_dropout,
                                           .factors = factors_dropout,
                                           .reference = reference_dropout,
                                           .vjp = vjp_dropout,
                                           .traits = kRandom});

Value random_bits(Counters c, std::int64_t purpose, Dims shape) {
  return c.key.program->add1(random_bits_op, {c.key, c.layer, c.step, c.row_ids, c.columns},
                             RandomAttrs{purpose, 0.0, std::move(shape)});
}

Value dropout(Value x, Counters c, std::int64_t purpose, double rate) {
  return x.program->add1(dropout_op, {x, c.key, c.layer, c.step, c.row_ids, c.columns},
                         RandomAttrs{purpose, rate, {}});
}

}  // namespace dew
