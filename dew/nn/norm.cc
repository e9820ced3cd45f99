#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {

void declare_norm(ParamList& list, const std::string& name, std::int64_t width, const char* axis,
                  NormKind kind) {
  list.add(name + "/" + names::kScale, {width}, {axis}, {Init::Kind::ones}, ParamKind::vector);
  if (kind == NormKind::layer) {
    list.add(name + "/" + names::kBias, {width}, {axis}, {Init::Kind::zeros}, ParamKind::vector);
  }
}

Value norm(const Scope& p, Value x, NormKind kind, double epsilon) {
  if (kind == NormKind::rms) return rms_norm(x, p(names::kScale), epsilon).y;
  return layer_norm(x, p(names::kScale), p(names::kBias), epsilon).y;
}

}  // namespace dew
