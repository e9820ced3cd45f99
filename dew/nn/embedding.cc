#include <cmath>

#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {

void declare_embedding(ParamList& list, const std::string& name, std::int64_t rows,
                       const char* axis, std::int64_t width) {
  const Init init = {Init::Kind::normal, 1.0 / std::sqrt(static_cast<double>(width))};
  list.add(name, {rows, width}, {axis, names::kEmbed}, init, ParamKind::embedding);
}

// Pinned: with a table that is split over its rows each device finds some of the ids, and the sum
// belongs here.
Value embed(Value table, Value ids) {
  const Value rows = gather_rows(table, ids);
  rows.program->pin(rows, {names::kBatch, names::kLength, ""});
  return rows;
}

Value logits(Value states, Value table, double softcap) {
  const Value scores =
      dot(states, table,
          {.lhs_contract = {states.type().rank() - 1}, .rhs_contract = {1}, .out = DType::f32});
  return softcap > 0 ? tanh(scores / softcap) * softcap : scores;
}

}  // namespace dew
