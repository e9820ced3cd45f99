#include "dew/train/placement.h"

#include <algorithm>
#include <set>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/nn/names.h"
#include "dew/sharding/process_grid.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

AxisNames layer_axes(const ParamSpec& param) {
  AxisNames axes = param.axes;
  if (!param.stack.empty()) axes.erase(axes.begin());
  return axes;
}

// Arrays of the parameters' shapes: state is placed, gradients and copies follow it.
class RegisterPlaces {
 public:
  RegisterPlaces(const Module& module, const Arrangement& arrangement)
      : module_(module), arrangement_(arrangement) {
    out_.mesh = arrangement.mesh;
    out_.registers.resize(module.registers.size());
    out_.stacked.resize(module.registers.size(), false);
    out_.accumulate_full = arrangement.accumulate_full;
  }

  void add_params(std::span<const ParamSpec> params) {
    // A list that ends with the gradients leaves them whole, for the host to read.
    const bool read =
        std::ranges::find(module_.lists, "gradient", &CallList::name) != module_.lists.end();
    for (const ParamSpec& param : params) {
      const Spec spec = state_spec(arrangement_, param);
      for (const char* prefix : {registers::kParameter, registers::kFirstMoment,
                                 registers::kSecondMoment, registers::kAverage})
        place(prefix + param.name, spec, !param.stack.empty());
      place(registers::kGradient + param.name, read ? std::optional(spec) : std::nullopt,
            !param.stack.empty());
      place(registers::kCast + param.name, std::nullopt, !param.stack.empty());
    }
  }

  // [A', rows, T'], [A', rows] or [T'], and logits [rows, T', vocab] where they are asked for.
  void add_batch() {
    for (const char* name : {registers::kIds, registers::kLabels, registers::kWeights,
                             registers::kPositions, registers::kSegments})
      place_batch(name, {"", names::kBatch, names::kLength}, true);
    place_batch(registers::kRowIds, {"", names::kBatch}, true);
    place_batch(registers::kColumns, {names::kLength}, false);
    place_batch(registers::kLogits, {names::kBatch, names::kLength, ""}, false);
  }

  Placement take() { return std::move(out_); }

 private:
  void place(const std::string& name, std::optional<Spec> spec, bool stacked) {
    const auto found = std::ranges::find(module_.registers, name, &Register::name);
    if (found == module_.registers.end()) return;
    const auto r = static_cast<std::size_t>(found - module_.registers.begin());
    out_.registers[r] = std::move(spec);
    out_.stacked[r] = stacked;
  }

  void place_batch(const char* name, const AxisNames& axes, bool stacked) {
    const auto found = std::ranges::find(module_.registers, name, &Register::name);
    if (found == module_.registers.end()) return;
    place(name, Spec{pin_dims(arrangement_.mesh, arrangement_.layout, found->type.shape, axes), 0},
          stacked);
  }

  const Module& module_;
  const Arrangement& arrangement_;
  Placement out_;
};

}  // namespace

std::int64_t Arrangement::batch_shards() const {
  return mesh.size(kData) * mesh.size(kExpert) * mesh.size(kFsdp);
}

Arrangement arrange(const MeshSpec& mesh, std::int64_t devices, const Layout& layout,
                    const models::CausalTransformer& model) {
  for (const auto& [name, size] : {std::pair{"sequence", mesh.sequence}, {"stage", mesh.stage}}) {
    if (size > 1) {
      fail(ErrorCode::layout_refused,
           format("the mesh axis {} has size {}, but nothing can be split over it yet", name, size),
           "data, expert, fsdp and tensor can be above 1");
    }
  }
  Arrangement out{.mesh = build_mesh(mesh, devices), .layout = layout};
  const models::TransformerConfig& config = model.config();
  out.mesh = mesh_for_heads(out.mesh, config.num_heads, config.num_kv_heads);
  std::vector<LayoutParameter> parameters;
  for (const ParamSpec& p : model.params())
    parameters.push_back({p.name, p.layer_shape(), layer_axes(p), p.layers()});
  check_layout(out.mesh, out.layout, parameters);
  return out;
}

std::vector<std::int64_t> shards_of_process(const Arrangement& arrangement, Processes& processes) {
  const Mesh& mesh = arrangement.mesh;
  std::vector<int> batch;
  for (const MeshAxis axis : {kData, kExpert, kFsdp}) {
    for (const int a : mesh.atoms_of(axis)) batch.push_back(a);
  }
  const std::vector<std::int64_t> owner = process_grid(mesh, processes.count()).process_of_device();
  std::set<std::int64_t> shards;
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    if (owner[static_cast<std::size_t>(device)] == processes.rank())
      shards.insert(mesh.block(batch, device));
  }
  return {shards.begin(), shards.end()};
}

Spec state_spec(const Arrangement& arrangement, const ParamSpec& param) {
  Spec spec =
      parameter_spec(arrangement.mesh, arrangement.layout, param.layer_shape(), layer_axes(param));
  if (!param.stack.empty()) spec.dims.insert(spec.dims.begin(), std::vector<int>{});
  return spec;
}

Placement place_module(const Module& module, std::span<const ParamSpec> params,
                       const Arrangement& arrangement, std::vector<DroppedPin>* dropped) {
  RegisterPlaces places(module, arrangement);
  places.add_params(params);
  places.add_batch();
  Placement out = places.take();
  out.pin = [mesh = arrangement.mesh, layout = arrangement.layout, dropped](
                const Dims& shape, const AxisNames& names) {
    std::vector<DroppedPin> here;
    DimAtoms dims = pin_dims(mesh, layout, shape, names, &here);
    for (DroppedPin& d : here) {
      if (dropped != nullptr && std::ranges::find(*dropped, d) == dropped->end())
        dropped->push_back(std::move(d));
    }
    return dims;
  };
  return out;
}

}  // namespace dew
