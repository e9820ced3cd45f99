#include "dew/nn/module.h"

#include <algorithm>
#include <cmath>

#include "dew/base/error.h"
#include "dew/nn/names.h"

namespace dew {

Dims ParamSpec::layer_shape() const {
  return stack.empty() ? type.shape : Dims(type.shape.begin() + 1, type.shape.end());
}

std::string ParamSpec::layer_name(std::int64_t slot) const {
  DEW_CHECK(slot >= 0 && slot < layers(), "slot " + std::to_string(slot) + " of " + name);
  if (stack.empty()) return name;
  return stack + "_" + std::to_string(layer_of_slot(slot)) + name.substr(stack.size());
}

std::int64_t parameter_count(std::span<const ParamSpec> params) {
  std::int64_t count = 0;
  for (const ParamSpec& param : params) count += param.type.elements();
  return count;
}

void init_part(const ParamSpec& param, RandomKey run_key, std::int64_t slot, std::int64_t first,
               std::span<float> out) {
  DEW_CHECK(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= param.layer_elements(),
            param.name);
  const auto at = static_cast<std::uint64_t>(first);
  const auto std = static_cast<float>(param.init.std);
  switch (param.init.kind) {
    case Init::Kind::zeros:
      std::ranges::fill(out, 0.0f);
      return;
    case Init::Kind::ones:
      std::ranges::fill(out, 1.0f);
      return;
    case Init::Kind::normal:
      fill_normal(fold(run_key, param.layer_name(slot)), at, std, out);
      return;
    case Init::Kind::truncated_normal:
      fill_truncated_normal(fold(run_key, param.layer_name(slot)), at, std, out);
      return;
  }
}

void ParamList::begin_stack(std::string name, std::int64_t layers) {
  DEW_CHECK(stack_.empty() && layers > 0, "stack " + name);
  stack_ = std::move(name);
  layers_ = layers;
}

void ParamList::end_stack() { stack_.clear(); }

void ParamList::add(const std::string& name, Dims shape, AxisNames axes, Init init,
                    ParamKind kind) {
  DEW_CHECK(shape.size() == axes.size(), "axes of " + name);
  std::string full = name;
  if (!stack_.empty()) {
    full = stack_ + "/" + name;
    shape.insert(shape.begin(), layers_);
    axes.insert(axes.begin(), names::kLayers);
  }
  const bool known =
      std::ranges::any_of(params_, [&](const ParamSpec& p) { return p.name == full; });
  DEW_CHECK(!known, "two parameters " + full);
  params_.push_back(
      {std::move(full), {DType::f32, std::move(shape)}, std::move(axes), stack_, init, kind});
}

Init dense_init(std::int64_t fan_in) {
  return {Init::Kind::truncated_normal, 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

}  // namespace dew
