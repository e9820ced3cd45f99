// What tests of models share: random parameters, small batches, and running a program by the names
// of its inputs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "dew/base/error.h"
#include "dew/ir/interpret.h"
#include "dew/nn/plain_transformer_test_support.h"

namespace dew::plain {

using Arrays = std::map<std::string, Array>;

// Inputs that `in` lacks are an error, others in `in` are ignored.
inline Arrays run(const Program& program, const Arrays& in) {
  std::vector<Array> inputs;
  for (const int id : program.inputs()) {
    const ValueInfo& info = program.values()[static_cast<std::size_t>(id)];
    DEW_CHECK(in.contains(info.name), "no input " + info.name);
    inputs.push_back(in.at(info.name));
  }
  const std::vector<Array> results = interpret(program, inputs);
  Arrays out;
  for (std::size_t i = 0; i < results.size(); ++i) out[program.outputs()[i].name] = results[i];
  return out;
}

// Values that are far from their initial ones, biases and scales too.
inline Params random_params(std::span<const ParamSpec> specs, std::uint64_t seed) {
  Params params;
  for (const ParamSpec& spec : specs) {
    std::vector<float> values(static_cast<std::size_t>(spec.type.elements()));
    fill_normal(fold(key_from_seed(seed), spec.name), 0, 0.3f, values);
    const double center = spec.init.kind == Init::Kind::ones ? 1.0 : 0.0;
    for (const float v : values) params[spec.name].push_back(center + static_cast<double>(v));
  }
  return params;
}

inline void add_params(Arrays& in, std::span<const ParamSpec> specs, const Params& params,
                       const std::string& prefix) {
  for (const ParamSpec& spec : specs) {
    Array array(spec.type.shape);
    array.data = params.at(spec.name);
    in[prefix + spec.name] = std::move(array);
  }
}

// Small whole numbers below `below`, a pure function of the counters.
inline int pick(std::uint32_t seed, std::uint32_t row, std::uint32_t column, int below) {
  return static_cast<int>(philox({seed, 7}, {row, column, 0, 0})[0] %
                          static_cast<std::uint32_t>(below));
}

// `rows` random rows; with `packed`, two documents a row, each with positions from 0.
inline std::vector<Sequence> random_batch(int rows, int columns, int vocab, bool packed,
                                          std::uint32_t seed = 1) {
  std::vector<Sequence> batch;
  for (int r = 0; r < rows; ++r) {
    Sequence row;
    row.row_id = r;
    const int cut = packed ? columns / 2 + r % 2 : columns;
    for (int t = 0; t < columns; ++t) {
      const auto ur = static_cast<std::uint32_t>(r), ut = static_cast<std::uint32_t>(t);
      row.ids.push_back(pick(seed, ur, ut, vocab));
      row.labels.push_back(pick(seed + 1, ur, ut, vocab));
      row.weights.push_back(pick(seed + 2, ur, ut, 4) * (1 + r) / 4.0);
      row.positions.push_back(t < cut ? t : t - cut);
      row.segments.push_back(t < cut ? 0 : 1);
    }
    batch.push_back(std::move(row));
  }
  return batch;
}

inline Array tokens(const std::vector<Sequence>& batch, Row Sequence::*field) {
  Array a(
      {static_cast<std::int64_t>(batch.size()), static_cast<std::int64_t>(batch[0].ids.size())});
  a.data.clear();
  for (const Sequence& row : batch)
    a.data.insert(a.data.end(), (row.*field).begin(), (row.*field).end());
  return a;
}

inline void add_batch(Arrays& in, const std::vector<Sequence>& batch) {
  in["ids"] = tokens(batch, &Sequence::ids);
  in["labels"] = tokens(batch, &Sequence::labels);
  in["positions"] = tokens(batch, &Sequence::positions);
  in["segments"] = tokens(batch, &Sequence::segments);
  Array weights(in["ids"].shape), row_ids(Dims{in["ids"].shape[0]}),
      columns(Dims{in["ids"].shape[1]});
  weights.data.clear();
  for (std::size_t r = 0; r < batch.size(); ++r) {
    weights.data.insert(weights.data.end(), batch[r].weights.begin(), batch[r].weights.end());
    row_ids.data[r] = batch[r].row_id;
  }
  for (std::size_t t = 0; t < columns.data.size(); ++t) columns.data[t] = static_cast<double>(t);
  in["weights"] = weights;
  in["row_ids"] = row_ids;
  in["columns"] = columns;
  in["key"] = Array(Dims{2});
  in["step"] = Array(Dims{});
}

inline double worst_difference(const Vec& a, const Vec& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;  // a NaN stays
  }
  return worst;
}

}  // namespace dew::plain
