#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {

void declare_norm(ParamList& list, const std::string& name, std::int64_t width, const char* axis,
                  NormKind kind) {
  const Init::Kind start = kind == NormKind::rms_plus_one ? Init::Kind::zeros : Init::Kind::ones;
  list.add(name + "/" + names::kScale, {width}, {axis}, {start}, ParamKind::vector);
  if (kind == NormKind::layer) {
    list.add(name + "/" + names::kBias, {width}, {axis}, {Init::Kind::zeros}, ParamKind::vector);
  }
}

Value norm(const Scope& p, Value x, NormKind kind, double epsilon) {
  if (kind == NormKind::rms_plus_one) return rms_norm(x, p(names::kScale) + 1.0, epsilon).y;
  if (kind == NormKind::rms) return rms_norm(x, p(names::kScale), epsilon).y;
  return layer_norm(x, p(names::kScale), p(names::kBias), epsilon).y;
}

}  // namespace dew
