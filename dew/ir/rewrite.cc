#include "dew/ir/rewrite.h"

#include <algorithm>
#include <map>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {

Cloner::Cloner(const Program& from, Program& to)
    : from_(from), to_(to), map_(from.values().size()) {}

void Cloner::map(int id, Value value) { map_[static_cast<std::size_t>(id)] = value; }

Value Cloner::operator[](int id) const {
  DEW_CHECK(has(id), format("{}: %{} was not copied", from_.name(), id));
  return map_[static_cast<std::size_t>(id)];
}

void Cloner::clone_input(int id) {
  const ValueInfo& info = from_.values()[static_cast<std::size_t>(id)];
  map(id, to_.input(info.name, info.type, info.weight));
  clone_annotations(id);
}

void Cloner::clone_node(const Node& node) {
  std::vector<Value> operands;
  for (const int id : node.operands) operands.push_back((*this)[id]);
  const std::vector<Value> results = to_.add(*node.op, operands, node.attrs);
  for (int i = 0; i < node.result_count; ++i) {
    map(node.first_result + i, results[static_cast<std::size_t>(i)]);
    clone_annotations(node.first_result + i);
  }
}

void Cloner::clone_annotations(int id) {
  const ValueInfo& info = from_.values()[static_cast<std::size_t>(id)];
  const Value v = (*this)[id];
  if (!info.pin.empty()) to_.pin(v, info.pin.front());
  if (info.node >= 0 && !info.name.empty()) to_.set_name(v, info.name);
  to_.set_shards(v, info.shards, info.stacked);
  cloned_.push_back(id);
}

void Cloner::finish() {
  const bool foreign = !from_.likes_of().empty();
  const auto translate = [&](int other) {
    if (other < 0 || foreign) return other;
    return has(other) ? map_[static_cast<std::size_t>(other)].id : -1;
  };
  for (const int id : cloned_) {
    const ValueInfo& info = from_.values()[static_cast<std::size_t>(id)];
    if (info.like >= 0) to_.set_like((*this)[id], translate(info.like));
    if (info.hint >= 0) to_.set_hint((*this)[id], translate(info.hint));
  }
}

namespace {

Program same_frame(const Program& program) {
  Program out(program.name());
  out.set_likes_of(program.likes_of());
  return out;
}

// Calls visit for inputs and nodes in order of value numbers.
template <class OnInput, class OnNode>
void in_order(const Program& p, OnInput on_input, OnNode on_node) {
  for (int id = 0; id < static_cast<int>(p.values().size()); ++id) {
    const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
    if (info.node < 0) {
      on_input(id);
    } else if (info.result == 0) {
      on_node(info.node, p.nodes()[static_cast<std::size_t>(info.node)]);
    }
  }
}

void copy_outputs(const Program& from, const Cloner& clone, Program& to) {
  for (const Output& o : from.outputs()) to.output(o.name, clone[o.value]);
}

// True if `more` computes what `less` does, in the same order, and returns that first among its
// carries and results.
bool extends(const ScanAttrs& more, const ScanAttrs& less) {
  if (more.carries != less.carries || more.slices != less.slices || more.length != less.length ||
      more.reverse != less.reverse) {
    return false;
  }
  const Program &a = *more.body, &b = *less.body;
  // Backward bodies know their forward body by its name.
  if (a.name() != b.name() || a.nodes().size() != b.nodes().size() || a.inputs() != b.inputs() ||
      a.outputs().size() < b.outputs().size()) {
    return false;
  }
  const bool nodes = std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(),
                                [](const Node& x, const Node& y) {
                                  return x.op == y.op && x.operands == y.operands &&
                                         x.attrs == y.attrs && x.first_result == y.first_result;
                                });
  return nodes && std::equal(b.outputs().begin(), b.outputs().end(), a.outputs().begin(),
                             [](const Output& x, const Output& y) { return x.value == y.value; });
}

// For each node, the last later scan that extends it, or the node itself.
std::vector<int> scan_substitutes(const Program& p) {
  std::vector<int> best(p.nodes().size());
  for (std::size_t i = 0; i < p.nodes().size(); ++i) {
    best[i] = static_cast<int>(i);
    const auto* less = std::get_if<ScanAttrs>(&p.nodes()[i].attrs);
    if (less == nullptr) continue;
    for (std::size_t j = i + 1; j < p.nodes().size(); ++j) {
      const auto* more = std::get_if<ScanAttrs>(&p.nodes()[j].attrs);
      if (more != nullptr && p.nodes()[i].operands == p.nodes()[j].operands &&
          extends(*more, *less)) {
        best[i] = static_cast<int>(j);
      }
    }
  }
  return best;
}

}  // namespace

Program without_dead_code(const Program& p) {
  std::vector<bool> live(p.nodes().size(), false);
  std::vector<bool> needed(p.values().size(), false);
  for (const Output& o : p.outputs()) needed[static_cast<std::size_t>(o.value)] = true;
  for (std::size_t n = p.nodes().size(); n-- > 0;) {
    const Node& node = p.nodes()[n];
    for (int i = 0; i < node.result_count; ++i) {
      if (needed[static_cast<std::size_t>(node.first_result + i)]) live[n] = true;
    }
    if (!live[n]) continue;
    for (const int id : node.operands) needed[static_cast<std::size_t>(id)] = true;
  }
  Program out = same_frame(p);
  Cloner clone(p, out);
  in_order(
      p, [&](int id) { clone.clone_input(id); },
      [&](int n, const Node& node) {
        if (live[static_cast<std::size_t>(n)]) clone.clone_node(node);
      });
  clone.finish();
  copy_outputs(p, clone, out);
  return out;
}

Program without_duplicates(const Program& p) {
  const std::vector<int> substitute = scan_substitutes(p);
  Program out = same_frame(p);
  Cloner clone(p, out);
  // Nodes made so far, by row and operands in the new program.
  std::multimap<std::pair<const OpDef*, std::vector<int>>, const Node*> made;
  const auto find_equal = [&](const Node& node, const std::vector<int>& operands) -> const Node* {
    const auto [first, last] = made.equal_range({node.op, operands});
    const auto it = std::find_if(
        first, last, [&](const auto& entry) { return entry.second->attrs == node.attrs; });
    return it == last ? nullptr : it->second;
  };
  in_order(
      p, [&](int id) { clone.clone_input(id); },
      [&](int n, const Node& original) {
        const Node& node =
            p.nodes()[static_cast<std::size_t>(substitute[static_cast<std::size_t>(n)])];
        std::vector<int> operands;
        for (const int id : node.operands) operands.push_back(clone[id].id);
        const Node* equal = node.operands.empty() ? nullptr : find_equal(node, operands);
        if (equal == nullptr) {
          clone.clone_node(node);
          made.insert({{node.op, operands}, &node});
          equal = &node;
        }
        for (int i = 0; i < original.result_count; ++i) {
          const int id = original.first_result + i;
          if (clone.has(id)) continue;
          clone.map(id, clone[equal->first_result + i]);
        }
      });
  clone.finish();
  copy_outputs(p, clone, out);
  return out;
}

}  // namespace dew
