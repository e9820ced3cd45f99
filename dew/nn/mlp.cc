#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {
namespace {

bool has_gate(MlpKind kind) { return kind == MlpKind::swiglu || kind == MlpKind::geglu; }

Value activation(MlpKind kind, Value x) {
  switch (kind) {
    case MlpKind::swiglu:
      return silu(x);
    case MlpKind::geglu:
    case MlpKind::gelu:
      return gelu_tanh(x);
    case MlpKind::gelu_erf:
      break;
  }
  return gelu_erf(x);
}

}  // namespace

void declare_mlp(ParamList& list, const std::string& name, const MlpOptions& o) {
  const Projection in = {.fan_in = o.width,
                         .in_axis = names::kEmbed,
                         .out = {o.features},
                         .out_axes = {names::kMlp},
                         .bias = o.bias};
  if (has_gate(o.kind)) declare_projection(list, name + "/" + names::kGate, in);
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
  if (has_gate(o.kind)) {
    const Value gate = project(p / names::kGate, x, wide);
    const Value up = project(p / names::kUp, x, wide);
    hidden = activation(o.kind, gate) * up;
  } else {
    hidden = activation(o.kind, project(p / names::kUp, x, wide));
  }
  return project(p / names::kDown, hidden, {names::kBatch, names::kLength, ""});
}

}  // namespace dew
