#include "dew/sharding/layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/nearest.h"

namespace dew {
namespace {

// Names that have no default rule and may get one.
constexpr std::string_view kNeverSplit[] = {"positions"};

bool is_activation(std::string_view name) { return name.starts_with("activation_"); }

// "tensor+fsdp"
std::string join_axes(const std::vector<std::string>& axes) {
  return format("{}", fmt::join(axes, "+"));
}

// The rules of a kind that count: those of the layout, or the default ones.
std::vector<LayoutRule> rules_for(const Layout& layout, bool activations) {
  const auto of_kind = [&](const LayoutRule& rule) {
    return is_activation(rule.name) == activations;
  };
  const bool own = std::ranges::any_of(layout.rules, of_kind);
  std::vector<LayoutRule> out;
  std::ranges::copy_if(own ? layout.rules : default_rules(), std::back_inserter(out), of_kind);
  return out;
}

// A rule on one mesh.
struct MeshRule {
  std::string name;
  std::vector<int> atoms;
};

// Without rules that split nothing here.
std::vector<MeshRule> on_mesh(const Mesh& mesh, const std::vector<LayoutRule>& rules) {
  std::vector<MeshRule> out;
  for (const LayoutRule& rule : rules) {
    MeshRule here{rule.name, {}};
    for (const std::string& axis : rule.axes) {
      const std::vector<int> atoms = mesh.atoms_of(parse_axis(axis));
      here.atoms.insert(here.atoms.end(), atoms.begin(), atoms.end());
    }
    if (!here.atoms.empty()) out.push_back(std::move(here));
  }
  return out;
}

// As many atoms, from the first, as divide `size` together.
std::vector<int> dividing_prefix(const Mesh& mesh, const std::vector<int>& atoms,
                                 std::int64_t size) {
  std::vector<int> taken;
  for (const int atom : atoms) {
    taken.push_back(atom);
    if (size % mesh.product(taken) == 0) continue;
    taken.pop_back();
    break;
  }
  return taken;
}

// The rules on one array.
class Assignment {
 public:
  Assignment(const Mesh& mesh, std::vector<MeshRule> rules, const Dims& shape,
             const AxisNames& names)
      : mesh_(mesh), rules_(std::move(rules)), shape_(shape), names_(names) {
    DEW_CHECK(shape.size() == names.size(), format("{} names for [{}]", names.size(), join(shape)));
    while (const std::optional<std::size_t> wrong = walk()) {
      dropped_.push_back(rules_[*wrong]);
      rules_.erase(rules_.begin() + static_cast<std::ptrdiff_t>(*wrong));
    }
  }

  const DimAtoms& dims() const { return dims_; }

  // Dimensions left whole only because a rule does not divide them, with the first such rule.
  std::vector<DroppedPin> dropped() const {
    std::vector<DroppedPin> out;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const auto rule = std::ranges::find(dropped_, names_[d], &MeshRule::name);
      if (dims_[d].empty() && rule != dropped_.end())
        out.push_back({names_[d], shape_[d], rule->atoms});
    }
    return out;
  }

 private:
  // Places all rules; the number of one that does not divide its dimension, if there is one.
  std::optional<std::size_t> walk() {
    dims_.assign(shape_.size(), {});
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      const auto& [name, atoms] = rules_[r];
      const AtomMask used = atoms_in(dims_);
      if (std::ranges::any_of(atoms, [&](int a) { return has(used, a); })) continue;
      const std::optional<std::size_t> d = free_dim(name);
      if (!d) continue;
      const bool part = name == "kv" || name == "activation_kv";
      dims_[*d] = part ? dividing_prefix(mesh_, atoms, shape_[*d]) : atoms;
      if (shape_[*d] % mesh_.product(dims_[*d]) != 0) return r;
    }
    return std::nullopt;
  }

  std::optional<std::size_t> free_dim(const std::string& name) const {
    for (std::size_t d = 0; d < names_.size(); ++d) {
      if (names_[d] == name && dims_[d].empty()) return d;
    }
    return std::nullopt;
  }

  const Mesh& mesh_;
  std::vector<MeshRule> rules_, dropped_;
  const Dims& shape_;
  const AxisNames& names_;
  DimAtoms dims_;
};

// Of a parameter that says nothing of its dimensions.
Spec undeclared_spec(const Mesh& mesh, const Dims& shape) {
  Spec spec = whole_spec(shape.size());
  const std::vector<int> fsdp = mesh.atoms_of(kFsdp);
  std::optional<std::size_t> largest;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] % mesh.product(fsdp) != 0) continue;
    if (!largest || shape[d] > shape[*largest]) largest = d;
  }
  if (largest) spec.dims[*largest] = fsdp;
  return spec;
}

bool works_for_heads(std::int64_t tensor, std::int64_t heads, std::int64_t kv_heads) {
  return heads % tensor == 0 && (kv_heads % tensor == 0 || tensor % kv_heads == 0);
}

std::string rule_text(const LayoutRule& rule) {
  return format("rule '{}: {}'", rule.name, join_axes(rule.axes));
}

void check_name(const LayoutRule& rule) {
  std::vector<std::string_view> known(std::begin(kNeverSplit), std::end(kNeverSplit));
  for (const LayoutRule& one : default_rules()) known.emplace_back(one.name);
  if (std::ranges::find(known, rule.name) != known.end()) return;
  fail(ErrorCode::usage, format("layout.rules: '{}' is no logical name, the nearest is '{}'",
                                rule.name, nearest(rule.name, known)));
}

void check_axes(const LayoutRule& rule) {
  std::vector<MeshAxis> axes;
  for (const std::string& name : rule.axes) {
    const MeshAxis axis = parse_axis(name, "layout.rules: ");
    if (std::ranges::find(axes, axis) != axes.end())
      fail(ErrorCode::usage, format("layout.rules: {} names {} twice", rule_text(rule), name));
    axes.push_back(axis);
  }
  if (rule.name == "layers" && axes != std::vector{kStage} && !axes.empty()) {
    fail(ErrorCode::usage,
         format("layout.rules: {}, but layers can be split over stage only", rule_text(rule)));
  }
  // Rows are dealt to these shards before any layout is asked.
  if (rule.name == "activation_batch" && axes != std::vector{kData, kExpert, kFsdp}) {
    fail(ErrorCode::usage,
         format("layout.rules: {}, but rows of a batch are always split over data+expert+fsdp",
                rule_text(rule)));
  }
  if (!is_activation(rule.name) && std::ranges::find(axes, kData) != axes.end()) {
    fail(ErrorCode::layout_refused,
         format("layout.rules: {} puts parameters on data, which holds a copy of each on every "
                "device",
                rule_text(rule)),
         "fsdp splits parameters and batch rows alike");
  }
}

// Whether a parameter could be split on this mesh at all.
bool splits_parameters(const Mesh& mesh, const Layout& layout,
                       std::span<const LayoutParameter> parameters) {
  const auto any_name = [&](std::string_view name) {
    return std::ranges::any_of(parameters, [&](const LayoutParameter& p) {
      return std::ranges::find(p.names, name) != p.names.end();
    });
  };
  const auto rules = rules_for(layout, /*activations=*/false);
  const bool sequence = std::ranges::any_of(rules, [](const LayoutRule& rule) {
    return std::ranges::find(rule.axes, "sequence") != rule.axes.end();
  });
  return mesh.size(kFsdp) > 1 || mesh.size(kTensor) > 1 || mesh.size(kStage) > 1 ||
         (mesh.size(kSequence) > 1 && sequence) || (mesh.size(kExpert) > 1 && any_name("exp"));
}

std::string parameter_text(const LayoutParameter& p) {
  return p.layers == 1 ? format("{} ({})", p.name, fmt::join(p.shape, ", "))
                       : format("{} ({} x ({}))", p.name, p.layers, fmt::join(p.shape, ", "));
}

std::int64_t elements_of(const LayoutParameter& p) { return p.layers * element_count(p.shape); }

[[noreturn]] void refuse_whole(const Mesh& mesh, const Layout& layout, std::int64_t all,
                               std::vector<LayoutParameter> whole) {
  std::ranges::stable_sort(whole, std::greater(), elements_of);
  std::int64_t elements = 0;
  std::vector<std::string> largest;
  for (const LayoutParameter& p : whole) {
    elements += elements_of(p);
    if (largest.size() < 5) largest.push_back(parameter_text(p));
  }
  fail(ErrorCode::layout_refused,
       format("layout leaves {} of {} elements ({:.1f} %) whole on every device of mesh {}, "
              "layout.tolerance = {} allows {:g} %; the largest of {}: {}",
              elements, all, 100.0 * static_cast<double>(elements) / static_cast<double>(all),
              to_string(mesh), layout.tolerance, 100 * layout.tolerance, whole.size(),
              fmt::join(largest, ", ")),
       "choose axis sizes that divide these dimensions, add a rule for their names, or accept it "
       "with layout.tolerance = 1");
}

}  // namespace

const std::vector<LayoutRule>& default_rules() {
  static const auto* const kRules = new std::vector<LayoutRule>{
      {"vocab", {"tensor", "fsdp", "stage"}},
      {"vocab", {"tensor", "fsdp"}},
      {"vocab", {"tensor"}},
      {"vocab", {"fsdp"}},
      {"mlp", {"tensor"}},
      {"mlp", {"fsdp"}},
      {"attention", {"tensor"}},
      {"attention", {"fsdp"}},
      {"embed", {"fsdp"}},
      {"head_dim", {"fsdp"}},
      {"output", {"fsdp"}},
      {"exp", {"expert"}},
      {"heads", {"tensor", "fsdp"}},
      {"heads", {"tensor"}},
      {"kv", {"tensor", "fsdp"}},
      {"kv", {"tensor"}},
      {"layers", {"stage"}},
      {"activation_batch", {"data", "expert", "fsdp"}},
      {"activation_length", {"sequence"}},
      {"activation_heads", {"tensor"}},
      {"activation_kv", {"tensor"}},
      {"activation_mlp", {"tensor"}},
      {"activation_vocab", {"tensor"}},
  };
  return *kRules;
}

Mesh mesh_for_heads(const Mesh& mesh, std::int64_t num_heads, std::int64_t num_kv_heads) {
  DEW_CHECK(num_heads >= 1 && num_kv_heads >= 1 && num_heads % num_kv_heads == 0,
            format("{} heads, {} of keys and values", num_heads, num_kv_heads));
  const std::int64_t tensor = mesh.size(kTensor);
  if (!works_for_heads(tensor, num_heads, num_kv_heads)) {
    std::vector<std::int64_t> legal;
    for (std::int64_t t = 1; t <= num_heads; ++t) {
      if (works_for_heads(t, num_heads, num_kv_heads)) legal.push_back(t);
    }
    fail(ErrorCode::layout_refused,
         format("mesh tensor = {} cannot split {} heads with {} heads of keys and values; tensor "
                "may be {}",
                tensor, num_heads, num_kv_heads, fmt::join(legal, ", ")),
         "tensor divides the number of heads, and divides that of keys and values or is a multiple "
         "of it");
  }
  if (num_kv_heads % tensor == 0) return mesh;
  return split_axis(mesh, kTensor, std::gcd(tensor, num_kv_heads));
}

Spec parameter_spec(const Mesh& mesh, const Layout& layout, const Dims& shape,
                    const AxisNames& names) {
  if (element_count(shape) < layout.min_shard) return whole_spec(shape.size());
  if (std::ranges::all_of(names, &std::string::empty)) return undeclared_spec(mesh, shape);
  return {Assignment(mesh, on_mesh(mesh, rules_for(layout, false)), shape, names).dims(), 0};
}

std::string to_string(const Mesh& mesh, const DroppedPin& dropped) {
  std::vector<std::string> axes;
  for (const int atom : dropped.atoms) {
    const MeshAtom& a = mesh.atoms[static_cast<std::size_t>(atom)];
    axes.push_back(format("{} ({})", a.name, a.size));
  }
  return format("{} of size {} stays whole: {} does not divide it", dropped.name, dropped.size,
                fmt::join(axes, " x "));
}

DimAtoms pin_dims(const Mesh& mesh, const Layout& layout, const Dims& shape, const AxisNames& names,
                  std::vector<DroppedPin>* dropped) {
  const Assignment assignment(mesh, on_mesh(mesh, rules_for(layout, true)), shape, names);
  if (dropped != nullptr) {
    const std::vector<DroppedPin> more = assignment.dropped();
    dropped->insert(dropped->end(), more.begin(), more.end());
  }
  return assignment.dims();
}

void check_rules(std::span<const LayoutRule> rules) {
  for (const LayoutRule& rule : rules) {
    check_name(rule);
    check_axes(rule);
  }
}

void check_layout(const Mesh& mesh, const Layout& layout,
                  std::span<const LayoutParameter> parameters) {
  check_rules(layout.rules);
  if (!splits_parameters(mesh, layout, parameters)) return;
  std::int64_t all = 0, whole_elements = 0;
  std::vector<LayoutParameter> whole;
  for (const LayoutParameter& p : parameters) {
    if (element_count(p.shape) < layout.min_shard) continue;
    all += elements_of(p);
    if (atoms_in(parameter_spec(mesh, layout, p.shape, p.names).dims) != 0) continue;
    whole_elements += elements_of(p);
    whole.push_back(p);
  }
  const double share =
      all == 0 ? 0 : static_cast<double>(whole_elements) / static_cast<double>(all);
  if (share > layout.tolerance) refuse_whole(mesh, layout, all, std::move(whole));
}

}  // namespace dew
