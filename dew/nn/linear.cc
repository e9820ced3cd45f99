#include "dew/base/error.h"
#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {

Value Scope::operator()(const std::string& name) const {
  const auto it = values_->find(prefix_ + "/" + name);
  DEW_CHECK(it != values_->end(), "no parameter " + prefix_ + "/" + name);
  return it->second;
}

Value Scope::operator()(const std::string& name, DType dtype) const {
  const Value value = (*this)(name);
  return value.dtype() == dtype ? value : convert(value, dtype);
}

void declare_projection(ParamList& list, const std::string& name, const Projection& projection) {
  Dims shape = {projection.fan_in};
  AxisNames axes = {projection.in_axis};
  shape.insert(shape.end(), projection.out.begin(), projection.out.end());
  axes.insert(axes.end(), projection.out_axes.begin(), projection.out_axes.end());
  list.add(name + "/" + names::kKernel, shape, axes, dense_init(projection.fan_in),
           ParamKind::matrix);
  if (projection.bias) {
    list.add(name + "/" + names::kBias, projection.out, projection.out_axes, {Init::Kind::zeros},
             ParamKind::vector);
  }
}

Value project(const Scope& p, Value x, AxisNames pin) {
  const Value product = linear(x, p(names::kKernel, x.dtype()));
  product.program->pin(product, std::move(pin));
  return p.has(names::kBias) ? product + p(names::kBias, x.dtype()) : product;
}

}  // namespace dew
