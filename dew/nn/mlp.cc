#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {

void declare_mlp(ParamList& list, const std::string& name, const MlpOptions& o) {
  const Projection in = {.fan_in = o.width,
                         .in_axis = names::kEmbed,
                         .out = {o.features},
                         .out_axes = {names::kMlp},
                         .bias = o.bias};
  if (o.kind != MlpKind::gelu) declare_projection(list, name + "/" + names::kGate, in);
  declare_projection(list, name + "/" + names::kUp, in);
  declare_projection(list, name + "/" + names::kDown,
                     {.fan_in = o.features,
                      .in_axis = names::kMlp,
                      .out = {o.width},
                      .out_axes = {names::kEmbed},
                      .bias = o.bias});
}

Value mlp(const Scope& p, Value x, const MlpOptions& o) {
  const AxisNames wide = {names::kBatch, names::kLength, names::kActivationMlp};
  Value hidden;
  if (o.kind == MlpKind::gelu) {
    hidden = gelu_tanh(project(p / names::kUp, x, wide));
  } else {
    const Value gate = project(p / names::kGate, x, wide);
    const Value up = project(p / names::kUp, x, wide);
    hidden = (o.kind == MlpKind::swiglu ? silu(gate) : gelu_tanh(gate)) * up;
  }
  return project(p / names::kDown, hidden, {names::kBatch, names::kLength, ""});
}

}  // namespace dew
