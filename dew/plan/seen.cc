#include "dew/plan/seen.h"

#include <algorithm>

#include "dew/base/error.h"

namespace dew {

// Not made by op_row(): no program has it, so it needs no more than a name.
constinit const OpDef replicas_differ_op = {.name = "replicas_differ"};

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The stride by which a member's number counts, if it is one.
std::optional<std::int64_t> member_stride(const Seen& x, const Dims& atoms,
                                          const Dims& atom_sizes) {
  for (std::size_t i = 0; i + 1 < atoms.size(); ++i) {
    if (x.stride(atoms[i]) != x.stride(atoms[i + 1]) * atom_sizes[at(atoms[i + 1])])
      return std::nullopt;
  }
  return x.stride(atoms.back());
}

// Atoms get strides as digits of a number that counts by `stride`, the last one the lowest.
void add_digits(Seen& x, const Dims& atoms, std::int64_t stride, const Dims& atom_sizes) {
  Dims strides(atoms.size());
  for (std::size_t i = atoms.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= atom_sizes[at(atoms[i])];
  }
  x.atoms.insert(x.atoms.end(), atoms.begin(), atoms.end());
  x.strides.insert(x.strides.end(), strides.begin(), strides.end());
}

}  // namespace

std::int64_t Seen::stride(std::int64_t atom) const {
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    if (atoms[i] == atom) return strides[i];
  }
  return 0;
}

void remove_atom(Seen& x, std::int64_t atom) {
  const auto i = std::ranges::find(x.atoms, atom) - x.atoms.begin();
  if (i == static_cast<std::ptrdiff_t>(x.atoms.size())) return;
  x.atoms.erase(x.atoms.begin() + i);
  x.strides.erase(x.strides.begin() + i);
}

MemoryLayout layout_of(const Type& local, const Dims& atoms, bool stacked, const Dims& atom_sizes) {
  const std::size_t before = stacked ? 1 : 0;  // local dimensions outside of the atoms
  MemoryLayout out{.memory = local, .seen = {.view = {}, .atoms = atoms, .strides = {}}};
  Dims sizes;
  for (const std::int64_t a : atoms) sizes.push_back(atom_sizes[at(a)]);
  Dims& shape = out.memory.shape;
  const auto split = static_cast<std::ptrdiff_t>(before);
  shape.insert(shape.begin() + split, sizes.begin(), sizes.end());
  const Dims strides = row_major_strides(shape);
  Dims local_strides = strides;
  const auto first = local_strides.begin() + split;
  local_strides.erase(first, first + static_cast<std::ptrdiff_t>(atoms.size()));
  out.seen.view = {-1, local, std::move(local_strides), 0, 0, {}};
  for (std::size_t i = 0; i < atoms.size(); ++i) out.seen.strides.push_back(strides[before + i]);
  return out;
}

View expanded(const Seen& seen, const Dims& atoms, bool stacked, const Dims& atom_sizes) {
  View v = seen.view;
  Dims sizes, strides;
  for (const std::int64_t a : atoms) {
    sizes.push_back(atom_sizes[at(a)]);
    strides.push_back(seen.stride(a));
  }
  const std::ptrdiff_t before = stacked ? 1 : 0;
  v.type.shape.insert(v.type.shape.begin() + before, sizes.begin(), sizes.end());
  v.strides.insert(v.strides.begin() + before, strides.begin(), strides.end());
  return v;
}

std::optional<Dims> reshaped_strides(const Dims& shape, const Dims& strides, const Dims& to) {
  if (element_count(to) == 0) return row_major_strides(to);
  Dims out(to.size(), 0);
  std::size_t i = 0;  // of the old dimensions
  for (std::size_t j = 0; j < to.size();) {
    // Take runs of old and new dimensions of equal product.
    std::size_t i_end = i + 1, j_end = j + 1;
    if (i >= shape.size()) {
      if (to[j] != 1) return std::nullopt;
      out[j++] = 1;
      continue;
    }
    std::int64_t old_size = shape[i], new_size = to[j];
    while (old_size != new_size) {
      if (old_size < new_size) {
        if (i_end == shape.size()) return std::nullopt;
        old_size *= shape[i_end++];
      } else {
        if (j_end == to.size()) return std::nullopt;
        new_size *= to[j_end++];
      }
    }
    for (std::size_t d = i; d + 1 < i_end; ++d) {
      if (strides[d] != strides[d + 1] * shape[d + 1]) return std::nullopt;
    }
    std::int64_t stride = strides[i_end - 1];
    for (std::size_t d = j_end; d-- > j;) {
      out[d] = stride;
      stride *= to[d];
    }
    i = i_end;
    j = j_end;
  }
  return out;
}

Seen own_part_view(Seen x, const GroupAttrs& group, const Dims& atom_sizes) {
  const std::size_t d = at(group.dims.back());
  std::int64_t& size = x.view.type.shape[d];
  size /= group.members;
  for (const std::int64_t a : group.atoms) remove_atom(x, a);
  add_digits(x, group.atoms, size * x.view.strides[d], atom_sizes);
  return x;
}

std::optional<Seen> gathered_view(Seen x, const GroupAttrs& group, const Dims& atom_sizes) {
  const std::size_t d = at(group.dims.front());
  const std::optional<std::int64_t> stride = member_stride(x, group.atoms, atom_sizes);
  std::int64_t& size = x.view.type.shape[d];
  if (!stride) return std::nullopt;
  if (size == 1) {
    x.view.strides[d] = *stride;
  } else if (*stride != size * x.view.strides[d]) {
    return std::nullopt;
  }
  size *= group.members;
  for (const std::int64_t a : group.atoms) remove_atom(x, a);
  return x;
}

// Runs of old and new atoms of equal product are one number each.
std::optional<Seen> permuted_view(const Seen& x, const GroupAttrs& group, const Dims& atom_sizes) {
  const Dims &from = group.atoms, &to = group.to;
  Seen out = x;
  for (const std::int64_t a : from) remove_atom(out, a);
  std::size_t i = 0, j = 0;
  while (i < from.size()) {
    Dims olds = {from[i++]}, news = {to[j++]};
    std::int64_t old_size = atom_sizes[at(olds[0])], new_size = atom_sizes[at(news[0])];
    while (old_size != new_size) {
      const bool more_old = old_size < new_size;
      const std::int64_t a = more_old ? from[i++] : to[j++];
      (more_old ? olds : news).push_back(a);
      (more_old ? old_size : new_size) *= atom_sizes[at(a)];
    }
    const std::optional<std::int64_t> stride = member_stride(x, olds, atom_sizes);
    if (!stride) return std::nullopt;
    add_digits(out, news, *stride, atom_sizes);
  }
  return out;
}

namespace {

void add_new(const Dims& atoms, Dims& all) {
  for (const std::int64_t a : atoms) {
    if (!contains(all, a)) all.push_back(a);
  }
}

// Every dimension of every operand and result is the same factor in the same place, or there is
// none; and what has none has no atoms.
bool goes_element_by_element(const FactorRule& rule, const std::vector<Seen>& operands) {
  const FactorRule::DimFactors& dims = rule.results.front();
  for (const FactorRule::DimFactors& r : rule.results) {
    if (r != dims) return false;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool scalar = rule.operands[i].empty() && operands[i].atoms.empty();
    if (!scalar && rule.operands[i] != dims) return false;
  }
  return !dims.empty();
}

// May parts of arrays be told apart by more of this factor? It must stand first wherever it is.
bool may_grow(const FactorRule& rule, int factor) {
  for (const auto* side : {&rule.operands, &rule.results}) {
    for (const FactorRule::DimFactors& dims : *side) {
      for (std::size_t d = 0; d < dims.size(); ++d) {
        const bool here = std::ranges::find(dims[d], factor) != dims[d].end();
        if (here && (d > 0 || dims[d].size() > 1)) return false;
      }
    }
  }
  const auto counts = [&](const std::pair<int, int>& p) { return p.first == factor; };
  return std::ranges::find(rule.norep, factor) == rule.norep.end() &&
         std::ranges::none_of(rule.index, counts) && std::ranges::none_of(rule.inner, counts);
}

}  // namespace

AtomUse use_of_atoms(const FactorRule& rule, const std::vector<Seen>& operands,
                     const std::vector<Dims>& result_atoms) {
  AtomUse use;
  Dims all;
  for (const Dims& atoms : result_atoms) add_new(atoms, all);
  for (const Seen& x : operands) add_new(x.atoms, all);
  if (all.empty()) return use;
  if (goes_element_by_element(rule, operands)) {
    use.elementwise = true;
    return use;
  }
  const auto first_factor = [](const FactorRule::DimFactors& dims) {
    return !dims.empty() && dims.front().size() == 1 ? dims.front().front() : -1;
  };
  for (const FactorRule::DimFactors& dims : rule.results) {
    const int f = first_factor(dims);
    if (use.factor < 0 && f >= 0 && may_grow(rule, f)) use.factor = f;
  }
  for (const std::int64_t a : all) {
    bool merges = use.factor >= 0;
    for (std::size_t i = 0; i < operands.size(); ++i)
      merges = merges && (!operands[i].has(a) || first_factor(rule.operands[i]) == use.factor);
    for (std::size_t i = 0; i < result_atoms.size(); ++i)
      merges =
          merges && (!contains(result_atoms[i], a) || first_factor(rule.results[i]) == use.factor);
    (merges ? use.merged : use.looped).push_back(a);
  }
  return use;
}

View part_at_position(const Seen& x, const AtomUse& use, bool rows, const Dims& atom_sizes) {
  View v = x.view;
  for (const std::int64_t a : use.looped) v.outer.push_back(x.stride(a));
  if (!rows || use.merged.empty()) return v;
  for (const std::int64_t a : use.merged) v.type.shape[0] *= atom_sizes[at(a)];
  v.strides = row_major_strides(v.type.shape);
  return v;
}

namespace {

Dims joined(const Dims& a, const Dims& b) {
  Dims out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

// Numbers of dimensions after `more` new ones in front; the first `batch` of those are listed, too.
Dims moved_back(const Dims& dims, std::size_t more, std::size_t batch = 0) {
  Dims out;
  for (std::size_t i = 0; i < batch; ++i) out.push_back(static_cast<std::int64_t>(i));
  for (const std::int64_t d : dims) out.push_back(d + static_cast<std::int64_t>(more));
  return out;
}

// A result's dimensions in the order in which a product gives them.
class ProductView {
 public:
  ProductView(const Seen& out, const Dims& atom_sizes) : out_(out), atom_sizes_(atom_sizes) {
    view_ = out.view;
    view_.type.shape.clear();
    view_.strides.clear();
  }

  void add_atoms(const Dims& atoms) {
    for (const std::int64_t a : atoms) {
      view_.type.shape.push_back(atom_sizes_[at(a)]);
      view_.strides.push_back(out_.stride(a));
    }
  }

  void add_local(std::size_t count) {
    for (; count > 0; --count, ++next_) {
      view_.type.shape.push_back(out_.view.type.shape[next_]);
      view_.strides.push_back(out_.view.strides[next_]);
    }
  }

  View take() { return std::move(view_); }

 private:
  const Seen& out_;
  const Dims& atom_sizes_;
  View view_;
  std::size_t next_ = 0;
};

}  // namespace

void place_dot(Step& step, const Seen& lhs, const Seen& rhs, const Seen& out,
               const Dims& atom_sizes) {
  const DotDims local = std::get<DotDims>(step.attrs);
  Dims both, left, right;
  for (const std::int64_t a : out.atoms)
    (lhs.has(a) ? rhs.has(a) ? both : left : right).push_back(a);
  const Dims of_lhs = joined(both, left), of_rhs = joined(both, right);
  auto& dims = std::get<DotDims>(step.attrs);
  dims.lhs_batch = moved_back(local.lhs_batch, of_lhs.size(), both.size());
  dims.rhs_batch = moved_back(local.rhs_batch, of_rhs.size(), both.size());
  dims.lhs_contract = moved_back(local.lhs_contract, of_lhs.size());
  dims.rhs_contract = moved_back(local.rhs_contract, of_rhs.size());
  step.inputs = {expanded(lhs, of_lhs, false, atom_sizes),
                 expanded(rhs, of_rhs, false, atom_sizes)};
  const std::size_t batch = local.lhs_batch.size(), summed = local.lhs_contract.size();
  ProductView result(out, atom_sizes);
  result.add_atoms(both);
  result.add_local(batch);
  result.add_atoms(left);
  result.add_local(lhs.view.type.shape.size() - batch - summed);
  result.add_atoms(right);
  result.add_local(rhs.view.type.shape.size() - batch - summed);
  step.outputs = {result.take()};
}

bool is_dense(const View& view) {
  std::int64_t expected = 1;
  for (std::size_t d = view.type.shape.size(); d-- > 0;) {
    if (view.type.shape[d] != 1 && view.strides[d] != expected) return false;
    expected *= view.type.shape[d];
  }
  return true;
}

View at_all_positions(const Step& step, const View& view) {
  View v = view;
  for (std::size_t d = step.outer.size(); d-- > 0;) {
    if (v.outer[d] == 0) continue;
    v.type.shape.insert(v.type.shape.begin(), step.outer[d]);
    v.strides.insert(v.strides.begin(), v.outer[d]);
  }
  v.outer.clear();
  return v;
}

Type memory_type(const ValueInfo& value, const Dims& atom_sizes) {
  return layout_of(value.type, value.shards, value.stacked, atom_sizes).memory;
}

}  // namespace dew
