#include "dew/hf/tensor_map.h"

#include <algorithm>
#include <map>
#include <set>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew::hf {
namespace {

// Elements of one of ours along `out`, and along `in` (1 where there is none).
struct Sizes {
  std::int64_t out = 0, in = 1;
};
Sizes sizes_of(const Placement& part) {
  const std::int64_t elements = element_count(part.our_shape);
  if (part.order == Order::vector || part.order == Order::table) return {elements, 1};
  const std::int64_t in = part.our_shape[0];
  return {elements / in, in};
}

Dims their_shape(const Placement& part) {
  switch (part.order) {
    case Order::table:
      return part.our_shape;
    case Order::vector:
      return {part.total};
    case Order::out_in:
      return {part.total, sizes_of(part).in};
    case Order::in_out:
      return {sizes_of(part).in, part.total};
  }
  return {};
}

Placement place(const TensorRow& row, const ParamSpec& param, std::int64_t slot) {
  Placement part = {.ours = param.layer_name(slot),
                    .our_shape = param.layer_shape(),
                    .order = row.order,
                    .first = row.first,
                    .total = row.total};
  const Sizes sizes = sizes_of(part);
  if (part.total == 0) part.total = sizes.out;
  DEW_CHECK(part.first + sizes.out <= part.total, part.ours);
  return part;
}

// Calls copy(index in theirs, index in ours) for each element. Matrices that are turned go in
// tiles: one of the two sides would leave the cache at every element otherwise.
template <class Copy>
void for_each_element(const Placement& part, Copy copy) {
  const auto [out, in] = sizes_of(part);
  if (part.order == Order::vector || part.order == Order::table) {
    for (std::int64_t i = 0; i < out; ++i) copy(part.first + i, i);
    return;
  }
  if (part.order == Order::in_out) {
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t o = 0; o < out; ++o) copy(i * part.total + part.first + o, i * out + o);
    }
    return;
  }
  constexpr std::int64_t kTile = 32;
  for (std::int64_t tile_o = 0; tile_o < out; tile_o += kTile) {
    for (std::int64_t tile_i = 0; tile_i < in; tile_i += kTile) {
      const std::int64_t end_i = std::min(in, tile_i + kTile);
      for (std::int64_t o = tile_o; o < std::min(out, tile_o + kTile); ++o) {
        for (std::int64_t i = tile_i; i < end_i; ++i) copy((part.first + o) * in + i, i * out + o);
      }
    }
  }
}

std::string with_layer(const std::string& pattern, std::int64_t layer) {
  const std::size_t at = pattern.find("{}");
  if (at == pattern.npos) return pattern;
  return pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

void check_sizes(const Placement& part, std::size_t theirs, std::size_t ours) {
  DEW_CHECK(theirs == static_cast<std::size_t>(element_count(their_shape(part))), part.ours);
  DEW_CHECK(ours == static_cast<std::size_t>(element_count(part.our_shape)), part.ours);
}

}  // namespace

std::vector<TheirTensor> map_tensors(std::span<const TensorRow> rows, std::string_view base_prefix,
                                     const models::CausalTransformer& model) {
  std::map<std::string, const ParamSpec*> params;
  for (const ParamSpec& param : model.params()) params[param.name] = &param;
  std::vector<TheirTensor> tensors;
  std::map<std::string, std::size_t> by_name;
  const auto add = [&](const TensorRow& row, const ParamSpec& param, std::int64_t slot) {
    const std::string name = (row.outside_base ? "" : std::string(base_prefix)) +
                             with_layer(row.theirs, layer_of_slot(slot));
    const Placement part = place(row, param, slot);
    const auto [at, fresh] = by_name.try_emplace(name, tensors.size());
    if (fresh) tensors.push_back({.name = name, .shape = their_shape(part), .parts = {}});
    TheirTensor& tensor = tensors[at->second];
    DEW_CHECK(tensor.shape == their_shape(part), name);
    tensor.parts.push_back(part);
  };
  std::set<std::string> used;
  const auto find = [&](const TensorRow& row) {
    const auto param = params.find(row.ours);
    DEW_CHECK(param != params.end() && used.insert(row.ours).second, "row of " + row.ours);
    return param->second;
  };
  for (const TensorRow& row : rows) {
    const ParamSpec& param = *find(row);
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) add(row, param, slot);
  }
  DEW_CHECK(used.size() == params.size(),
            format("{} of {} parameters are in the table", used.size(), params.size()));
  return tensors;
}

void to_ours(const Placement& part, std::span<const float> theirs, std::span<float> ours) {
  check_sizes(part, theirs.size(), ours.size());
  for_each_element(part, [&](std::int64_t from, std::int64_t to) {
    ours[static_cast<std::size_t>(to)] = theirs[static_cast<std::size_t>(from)];
  });
}

void to_theirs(const Placement& part, std::span<const float> ours, std::span<float> theirs) {
  check_sizes(part, theirs.size(), ours.size());
  for_each_element(part, [&](std::int64_t to, std::int64_t from) {
    theirs[static_cast<std::size_t>(to)] = ours[static_cast<std::size_t>(from)];
  });
}

void make_theirs(const TheirTensor& tensor, const FindOurs& find, std::span<float> out) {
  for (const Placement& part : tensor.parts) to_theirs(part, find(part.ours), out);
}

}  // namespace dew::hf
