#include "dew/partition/device_program.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

Dims to_dims(const std::vector<int>& numbers) { return Dims(numbers.begin(), numbers.end()); }

Spec without_first(Spec spec) {
  spec.dims.erase(spec.dims.begin());
  return spec;
}

Spec with_first(Spec spec) {
  spec.dims.insert(spec.dims.begin(), std::vector<int>{});
  return spec;
}

// Atoms that stand at another place of a spec, or nowhere, than in `to`.
std::vector<int> tails(const Spec& spec, const Spec& to) {
  std::vector<int> out;
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    std::size_t k = 0;
    while (k < std::min(spec.dims[d].size(), to.dims[d].size()) && spec.dims[d][k] == to.dims[d][k])
      ++k;
    out.insert(out.end(), spec.dims[d].begin() + static_cast<std::ptrdiff_t>(k),
               spec.dims[d].end());
  }
  return out;
}

// Split along its first dimension an array is no stack: its slices are on different devices.
bool is_stack(const Spec& spec) { return spec.dims.empty() || spec.dims.front().empty(); }

bool only_reduces(const std::vector<ReshardStep>& steps) {
  return std::ranges::all_of(steps, [](const ReshardStep& s) {
    return s.move == Move::all_reduce || s.move == Move::reduce_scatter || s.move == Move::slice;
  });
}

}  // namespace

DeviceProgram::DeviceProgram(WalkContext& context, KnownBodies& bodies, const Program& whole,
                             bool late, std::int64_t trips, std::string top)
    : context_(context),
      bodies_(bodies),
      whole_(whole),
      local_(whole.name()),
      late_(late),
      trips_(trips),
      top_(std::move(top)),
      placed_(whole.values().size()),
      values_(context.values[values_name(top_, whole)]) {
  values_.resize(whole.values().size());
}

void DeviceProgram::input(const Spec& spec, bool stacked) {
  const int id = whole_.inputs()[inputs_++];
  const Type type{info(id).type.dtype, local_shape(mesh(), info(id).type.shape, spec)};
  define(id, local_.input(info(id).name, type, info(id).weight), spec, stacked);
}

void DeviceProgram::walk() {
  for (const Node& n : whole_.nodes()) node(n);
  std::vector<KnownValue>& known = bodies_[whole_.name()];
  known.clear();
  for (std::size_t id = 0; id < placed_.size(); ++id) {
    const ValueInfo& value = whole_.values()[id];
    known.push_back({value.type.shape, placed_[id].defined, value.weight});
  }
}

const WalkedValue& DeviceProgram::output(std::size_t i) const {
  return placed_[at(whole_.outputs()[i].value)];
}

void DeviceProgram::output(std::size_t i, const Spec& spec) {
  const Output& o = whole_.outputs()[i];
  local_.output(o.name, fetch(o.value, spec));
}

void DeviceProgram::node(const Node& n) {
  if (n.op == &scan_op) {
    scan(n);
  } else {
    compute(n);
  }
}

// ---- wishes ----

// The value that `like` or `hint` names: of this program, or of the forward body.
const KnownValue* DeviceProgram::reference(int other, KnownValue& space) const {
  if (other < 0) return nullptr;
  if (!whole_.likes_of().empty()) {
    const auto body = bodies_.find(whole_.likes_of());
    DEW_CHECK(body != bodies_.end() && at(other) < body->second.size(),
              format("{}: %{} of {} is not known", whole_.name(), other, whole_.likes_of()));
    return &body->second[at(other)];
  }
  space = {info(other).type.shape, placed_[at(other)].defined, info(other).weight};
  return &space;
}

std::optional<DimAtoms> DeviceProgram::wish(int id) const {
  const ValueInfo& value = info(id);
  if (!value.pin.empty()) return context_.placement.pin(value.type.shape, value.pin.front());
  KnownValue space;
  const KnownValue* other = reference(value.like >= 0 ? value.like : value.hint, space);
  if (other == nullptr || other->shape != value.type.shape) return std::nullopt;
  return other->dims;
}

bool DeviceProgram::wish_weight(int id) const {
  const ValueInfo& value = info(id);
  KnownValue space;
  const KnownValue* other = reference(value.like >= 0 ? value.like : value.hint, space);
  return other == nullptr ? value.weight : other->weight;
}

// Values with a pin or a like are brought there at once; all others keep what came out.
Spec DeviceProgram::kept_spec(int id, const Spec& made) const {
  const ValueInfo& value = info(id);
  if (value.pin.empty() && value.like < 0) return made;
  const std::optional<DimAtoms> dims = wish(id);
  Spec goal{dims ? *dims : made.dims, 0};
  if (value.pin.empty() && late_ && wish_weight(id)) return summed_within_loops(id, made, goal);
  return goal;
}

// Sums of parameter gradients do only what shrinks them: they are scattered over what the
// parameter is split by; all-reduces and gathers wait until the loops are done.
Spec DeviceProgram::summed_within_loops(int id, const Spec& made, const Spec& goal) const {
  if (context_.placement.accumulate_full) return made;
  const AtomMask mine = atoms_in(made.dims), theirs = atoms_in(goal.dims);
  if ((mine & ~theirs) == 0) return {goal.dims, made.partial & ~theirs};
  Spec out = made;  // the product left it split some other way; that waits, too
  for (std::size_t d = 0; d < goal.dims.size(); ++d) {
    for (const int a : goal.dims[d]) {
      Spec more = out;
      more.dims[d].push_back(a);
      if (!has(out.partial, a) || !divides(mesh(), info(id).type.shape, more)) continue;
      out = more;
      out.partial &= ~bit(a);
    }
  }
  return out;
}

void DeviceProgram::define(int id, Value local, const Spec& made, bool stacked) {
  const Dims expected = local_shape(mesh(), info(id).type.shape, made);
  DEW_CHECK(local.shape() == expected, format("{}: %{} is {} on a device, not [{}]", whole_.name(),
                                              id, to_string(local.type()), join(expected)));
  annotated(local, made, stacked);
  placed(id) = {local, made, made.dims, stacked && is_stack(made)};
  const Spec kept = kept_spec(id, made);
  values_[at(id)] = {made, kept};
  if (kept == made) return;
  placed(id) = {reshard(id, local, made, kept), kept, kept.dims, stacked && is_stack(kept)};
}

Value DeviceProgram::annotated(Value local, const Spec& spec, bool stacked) {
  const bool lies_stacked = stacked && is_stack(spec);
  local_.set_shards(local, to_dims(memory_order(spec, lies_stacked)), lies_stacked);
  return local;
}

// ---- movement ----

GroupAttrs DeviceProgram::group(const std::vector<int>& atoms, const std::vector<int>& dims) const {
  return {
      .atoms = to_dims(atoms), .members = mesh().product(atoms), .dims = to_dims(dims), .to = {}};
}

void DeviceProgram::record(const char* what, const std::vector<int>& atoms, double bytes, int id) {
  context_.collectives.push_back({.program = top_,
                                  .region = region(),
                                  .what = what,
                                  .atoms = atoms,
                                  .bytes = bytes * static_cast<double>(trips_),
                                  .value = id});
}

std::string DeviceProgram::region() const {
  return whole_.name() == top_ ? format("top {}", loops_) : whole_.name();
}

Value DeviceProgram::apply(Value x, const ReshardStep& step) {
  const GroupAttrs g = group(step.atoms, step.dims);
  switch (step.move) {
    case Move::slice:
      return own_part(x, g);
    case Move::keep_first: {
      const Spec by_member{{}, bit(step.atoms.front())};
      const Value member = annotated(device_index(local_, g), by_member, false);
      const Value zero = constant(local_, {DType::i32, {}}, 0);
      const Value first = annotated(equal(member, zero), by_member, false);
      return select(first, x, constant(local_, {x.dtype(), {}}, 0));
    }
    case Move::all_gather:
      return all_gather(x, g);
    case Move::all_to_all:
      return all_to_all(x, g);
    case Move::permute: {
      GroupAttrs moved = group(tails(step.from, step.to));
      moved.to = to_dims(tails(step.to, step.from));
      return permute(x, moved);
    }
    case Move::all_reduce:
      return all_reduce(x, g);
    case Move::reduce_scatter:
      return reduce_scatter(x, g);
  }
  return x;
}

Value DeviceProgram::reshard(int id, Value local, const Spec& from, const Spec& to) {
  const Type& type = info(id).type;
  const std::vector<ReshardStep>& steps =
      context_.resharder.steps(type.shape, byte_size(type.dtype), from, to);
  for (const ReshardStep& step : steps) {
    local = annotated(apply(local, step), step.to, placed(id).stacked);
    if (step.communicates()) record(name(step.move), step.atoms, step.bytes, id);
  }
  record_detour(steps, type, id);
  return local;
}

void DeviceProgram::record_detour(const std::vector<ReshardStep>& steps, const Type& type, int id) {
  if (steps.size() < 2) return;
  const auto bytes = [&](const Spec& spec) {
    return element_count(local_shape(mesh(), type.shape, spec)) * byte_size(type.dtype);
  };
  const Spec &from = steps.front().from, &to = steps.back().to;
  const auto widest =
      std::ranges::max_element(steps, {}, [&](const ReshardStep& step) { return bytes(step.to); });
  const std::int64_t most = bytes(widest->to), ends = std::max(bytes(from), bytes(to));
  if (most > ends) {
    context_.detours.push_back({values_name(top_, whole_), id, from, to, widest->to, most, ends});
  }
}

// The value as `spec` asks; what was fetched before in this region is used again. A partial sum
// that is only reduced stays reduced for all later uses.
Value DeviceProgram::fetch(int id, const Spec& spec) {
  WalkedValue& value = placed(id);
  if (value.spec == spec) return value.local;
  for (const Fetched& f : fetched_) {
    if (f.id == id && f.spec == spec) return f.local;
  }
  const Type& type = info(id).type;
  const bool replaces =
      value.spec.partial != 0 && spec.partial == 0 &&
      only_reduces(context_.resharder.steps(type.shape, byte_size(type.dtype), value.spec, spec));
  const Value local = reshard(id, value.local, value.spec, spec);
  if (replaces) {
    value.local = local;
    value.spec = spec;
  } else {
    fetched_.push_back({id, spec, local});
  }
  return local;
}

// ---- ops ----

void DeviceProgram::compute(const Node& n) {
  std::vector<Type> operand_types, result_types;
  std::vector<OperandVote> votes;
  std::vector<ResultWish> wishes;
  for (const int id : n.operands) {
    operand_types.push_back(info(id).type);
    votes.push_back({placed(id).spec, info(id).weight});
  }
  for (int i = 0; i < n.result_count; ++i) {
    const int id = n.first_result + i;
    result_types.push_back(info(id).type);
    wishes.push_back({wish(id), wish_weight(id)});
  }
  const FactorRule rule = n.op->factors(n.attrs, operand_types, result_types);
  const Assignment assignment = assign(mesh(), rule, votes, wishes);
  std::vector<Value> operands;
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    const int id = n.operands[i];
    Value x = fetch(id, operand_spec(rule, assignment, i, placed(id).spec));
    for (const auto& [factor, operand] : rule.index) {
      const std::vector<int>& atoms = assignment.factors[at(factor)];
      if (at(operand) != i || atoms.empty()) continue;
      x = counted_from_part(x, atoms, rule.sizes[at(factor)] / mesh().product(atoms));
    }
    operands.push_back(x);
  }
  std::vector<bool> stacked;
  for (int i = 0; i < n.result_count; ++i) stacked.push_back(is_stacked(n, rule, at(i)));
  const std::vector<Value> results = local_.add(*n.op, operands, local_attrs(n, rule, assignment));
  record_inner(n, rule, assignment);
  for (int i = 0; i < n.result_count; ++i) {
    define(n.first_result + i, results[at(i)], result_spec(rule, assignment, at(i)),
           stacked[at(i)]);
  }
}

// Integers that count along a dimension, less the number at which the device's part of it begins.
Value DeviceProgram::counted_from_part(Value integers, const std::vector<int>& atoms,
                                       std::int64_t part) {
  Spec by_atoms;
  for (const int a : atoms) by_atoms.partial |= bit(a);
  const auto scalar = [&](Value v) { return annotated(v, by_atoms, false); };
  const Value first = scalar(mul(scalar(device_index(local_, group(atoms))),
                                 constant(local_, {DType::i32, {}}, static_cast<double>(part))));
  const Value counted = sub(integers, first);
  Dims shards = to_dims(atoms);
  for (const std::int64_t a : local_.info(integers).shards) {
    if (!contains(shards, a)) shards.push_back(a);
  }
  local_.set_shards(counted, std::move(shards), false);
  return counted;
}

Attrs DeviceProgram::local_attrs(const Node& n, const FactorRule& rule,
                                 const Assignment& assignment) const {
  Attrs attrs = n.attrs;
  if (n.op->localize != nullptr) {
    std::vector<Type> local;
    for (int i = 0; i < n.result_count; ++i) {
      const Type& type = info(n.first_result + i).type;
      const Spec made = result_spec(rule, assignment, at(i));
      local.push_back({type.dtype, local_shape(mesh(), type.shape, made)});
    }
    attrs = n.op->localize(attrs, local);
  }
  if (auto* head = std::get_if<HeadAttrs>(&attrs)) {
    const std::vector<int>& atoms = assignment.factors[at(rule.inner.front().first)];
    head->atoms = to_dims(atoms);
    head->members = mesh().product(atoms);
  }
  return attrs;
}

// What an op reduces by itself: for head_loss maximum, sum and label's logit of each token (f32),
// and the states' gradient.
void DeviceProgram::record_inner(const Node& n, const FactorRule& rule,
                                 const Assignment& assignment) {
  const auto* head = std::get_if<HeadAttrs>(&n.attrs);
  if (head == nullptr) return;
  const std::vector<int>& atoms = assignment.factors[at(rule.inner.front().first)];
  if (atoms.empty()) return;
  const auto members = static_cast<double>(mesh().product(atoms));
  const Spec states = operand_spec(rule, assignment, 0, {});
  const Dims local = local_shape(mesh(), info(n.operands[0]).type.shape, states);
  const auto tokens = static_cast<double>(local[0] * local[1]);
  const double share = 2 * (members - 1) / members;
  for (int i = 0; i < 3; ++i) record("all_reduce", atoms, share * tokens * 4, n.first_result);
  if (head->gradients) {
    const auto width = static_cast<double>(local[2] * byte_size(info(n.operands[0]).type.dtype));
    record("all_reduce", atoms, share * tokens * width, n.first_result + 4);
  }
}

// A result is a stack where an operand is, and both have the stack's dimension first.
bool DeviceProgram::is_stacked(const Node& n, const FactorRule& rule, std::size_t result) const {
  if (rule.results[result].empty()) return false;
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    if (placed_[at(n.operands[i])].stacked && !rule.operands[i].empty() &&
        rule.operands[i].front() == rule.results[result].front())
      return true;
  }
  return false;
}

void DeviceProgram::scan(const Node& n) {
  const auto& attrs = std::get<ScanAttrs>(n.attrs);
  const Program& body = *attrs.body;
  const auto carries = static_cast<std::size_t>(attrs.carries),
             slices = static_cast<std::size_t>(attrs.slices);
  fetched_.clear();
  ++loops_;
  DeviceProgram inner(context_, bodies_, body, late_, attrs.length * trips_, top_);
  std::vector<Value> operands;
  std::vector<Spec> carried;
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    const int id = n.operands[i];
    Spec spec = placed(id).spec;
    const bool slice = i >= carries && i < carries + slices;
    if (!slice) spec.partial = 0;
    if (slice) spec.dims.front().clear();
    const ValueInfo& seen = body.values()[at(body.inputs()[i])];
    if (i < carries && !seen.pin.empty())
      spec.dims = context_.placement.pin(seen.type.shape, seen.pin.front());
    operands.push_back(fetch(id, spec));
    if (i < carries) carried.push_back(spec);
    inner.input(slice ? without_first(spec) : spec, false);
  }
  inner.walk();
  std::vector<Spec> made;
  std::vector<bool> stacked;
  for (std::size_t i = 0; i < body.outputs().size(); ++i) {
    const Spec spec = i < carries ? carried[i] : inner.output(i).spec;
    inner.output(i, spec);
    made.push_back(i < carries ? spec : with_first(spec));
  }
  ScanAttrs local = attrs;
  local.body = std::make_shared<const Program>(inner.take());
  const std::vector<Value> results = local_.add(scan_op, operands, local);
  for (std::size_t i = 0; i < results.size(); ++i)
    define(n.first_result + static_cast<int>(i), results[i], made[i], i >= carries);
  fetched_.clear();
}

}  // namespace dew
