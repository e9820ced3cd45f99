#include "dew/autodiff/simplify.h"

#include <algorithm>

#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

class Simplifier {
 public:
  explicit Simplifier(const Program& p)
      : p_(p), out_(p.name()), clone_(p, out_), uses_(p.values().size(), 0) {
    out_.set_likes_of(p.likes_of());
    for (const Node& node : p.nodes()) {
      for (const int id : node.operands) ++uses_[static_cast<std::size_t>(id)];
    }
    for (const Output& o : p.outputs()) ++uses_[static_cast<std::size_t>(o.value)];
  }

  Program run() {
    for (int id = 0; id < static_cast<int>(p_.values().size()); ++id) {
      const ValueInfo& info = p_.values()[static_cast<std::size_t>(id)];
      if (info.node < 0) {
        clone_.clone_input(id);
      } else if (info.result == 0) {
        rewrite(p_.nodes()[static_cast<std::size_t>(info.node)]);
      }
    }
    clone_.finish();
    for (const Output& o : p_.outputs()) out_.output(o.name, clone_[o.value]);
    return std::move(out_);
  }

 private:
  const Type& type(int id) const { return p_.values()[static_cast<std::size_t>(id)].type; }

  const Node* maker(int id) const {
    const int n = p_.values()[static_cast<std::size_t>(id)].node;
    return n < 0 ? nullptr : &p_.nodes()[static_cast<std::size_t>(n)];
  }

  bool is_splat(int id, double value) const {
    const Node* node = maker(id);
    return node != nullptr && node->op == &constant_op &&
           std::get<Fill>(node->attrs).value == value;
  }

  void rewrite(const Node& node) {
    const int same = same_as(node);
    if (same >= 0) {
      clone_.map(node.first_result, clone_[same]);
      return;
    }
    if (node.op == &add_op && (scatter_into(node, 0) || scatter_into(node, 1))) return;
    const auto* scan = std::get_if<ScanAttrs>(&node.attrs);
    // A forward body keeps its value numbers: its backward body's likes and hints name them.
    if (scan != nullptr && !scan->body->likes_of().empty()) {
      Node inner = node;
      auto attrs = *scan;
      attrs.body = std::make_shared<const Program>(
          without_dead_code(without_duplicates(simplify(*scan->body))));
      inner.attrs = attrs;
      clone_.clone_node(inner);
      return;
    }
    clone_.clone_node(node);
  }

  // The operand that the result is, or -1.
  int same_as(const Node& node) const {
    if (node.operands.empty()) return -1;
    const int x = node.operands[0];
    const bool same_type = type(x) == type(node.first_result);
    const bool second =
        node.operands.size() == 2 && type(node.operands[1]) == type(node.first_result);
    if (node.op == &mul_op) {
      if (same_type && is_splat(node.operands[1], 1.0)) return x;
      if (second && is_splat(x, 1.0)) return node.operands[1];
    }
    if (node.op == &add_op) {
      if (same_type && is_splat(node.operands[1], 0.0)) return x;
      if (second && is_splat(x, 0.0)) return node.operands[1];
    }
    if (!same_type) return -1;
    if (node.op == &convert_op || node.op == &reshape_op || node.op == &slice_op ||
        node.op == &stop_gradient_op)
      return x;
    if (node.op == &broadcast_op) return x;
    if (node.op == &transpose_op && std::ranges::is_sorted(std::get<Permutation>(node.attrs).order))
      return x;
    return -1;
  }

  // add(scatter_add_rows(0, ids, u), a) -> scatter_add_rows(a, ids, u); `which` operand is the
  // scatter.
  bool scatter_into(const Node& node, std::size_t which) {
    const int scatter = node.operands[which], other = node.operands[1 - which];
    const Node* made = maker(scatter);
    if (made == nullptr || made->op != &scatter_add_rows_op ||
        uses_[static_cast<std::size_t>(scatter)] != 1)
      return false;
    if (!is_splat(made->operands[0], 0.0) || type(other) != type(scatter)) return false;
    const Value sum =
        scatter_add_rows(clone_[other], clone_[made->operands[1]], clone_[made->operands[2]]);
    clone_.map(node.first_result, sum);
    clone_.clone_annotations(node.first_result);
    return true;
  }

  const Program& p_;
  Program out_;
  Cloner clone_;
  std::vector<int> uses_;
};

// One addition that moves into a scan.
struct Fold {
  int sum = -1;     // the add's result
  int addend = -1;  // the input x
  int result = -1;  // number of the scan's result
};

// The body with one more stacked operand for each fold, behind those it has, added to its output.
std::shared_ptr<const Program> body_with_addends(const ScanAttrs& scan,
                                                 const std::vector<Fold>& folds) {
  const Program& body = *scan.body;
  auto out = std::make_shared<Program>(body.name());
  out->set_likes_of(body.likes_of());
  Cloner clone(body, *out);
  const auto first_constant = static_cast<std::size_t>(scan.carries + scan.slices);
  for (std::size_t i = 0; i < first_constant; ++i) clone.clone_input(body.inputs()[i]);
  std::vector<Value> addends;
  for (const Fold& f : folds) {
    const Output& o = body.outputs()[static_cast<std::size_t>(f.result)];
    addends.push_back(
        out->input("addend/" + o.name, body.values()[static_cast<std::size_t>(o.value)].type));
  }
  for (std::size_t i = first_constant; i < body.inputs().size(); ++i)
    clone.clone_input(body.inputs()[i]);
  for (const Node& node : body.nodes()) clone.clone_node(node);
  clone.finish();
  for (std::size_t k = 0; k < body.outputs().size(); ++k) {
    const Output& o = body.outputs()[k];
    Value v = clone[o.value];
    const auto fold = std::ranges::find(folds, static_cast<int>(k), &Fold::result);
    if (fold != folds.end()) {
      const ValueInfo info = out->info(v);
      v = add(addends[static_cast<std::size_t>(fold - folds.begin())], v);
      if (info.like >= 0) out->set_like(v, info.like);
    }
    out->output(o.name, v);
  }
  return out;
}

std::vector<Fold> folds_of(const Program& p, const Node& scan, const std::vector<int>& uses) {
  std::vector<Fold> out;
  // A forward body keeps its numbering.
  if (std::get<ScanAttrs>(scan.attrs).body->likes_of().empty()) return out;
  const auto carries = static_cast<int>(std::get<ScanAttrs>(scan.attrs).carries);
  for (const Node& node : p.nodes()) {
    if (node.op != &add_op) continue;
    for (std::size_t i = 0; i < 2; ++i) {
      const int result = node.operands[i] - scan.first_result, x = node.operands[1 - i];
      if (result < carries || result >= scan.result_count) continue;
      if (p.values()[static_cast<std::size_t>(x)].node >= 0 ||
          uses[static_cast<std::size_t>(node.operands[i])] != 1)
        continue;
      if (p.values()[static_cast<std::size_t>(x)].type !=
          p.values()[static_cast<std::size_t>(node.operands[i])].type)
        continue;
      out.push_back({node.first_result, x, result});
      break;
    }
  }
  return out;
}

}  // namespace

Program simplify(const Program& program) { return Simplifier(program).run(); }

Program accumulate_in_scans(const Program& p) {
  std::vector<int> uses(p.values().size(), 0);
  for (const Node& node : p.nodes()) {
    for (const int id : node.operands) ++uses[static_cast<std::size_t>(id)];
  }
  for (const Output& o : p.outputs()) ++uses[static_cast<std::size_t>(o.value)];
  Program out(p.name());
  Cloner clone(p, out);
  for (const int id : p.inputs()) clone.clone_input(id);
  for (const Node& node : p.nodes()) {
    if (clone.has(node.first_result)) continue;  // an addition that moved
    const auto* scan = std::get_if<ScanAttrs>(&node.attrs);
    const std::vector<Fold> folds = scan == nullptr ? std::vector<Fold>{} : folds_of(p, node, uses);
    if (folds.empty()) {
      clone.clone_node(node);
      continue;
    }
    Node with = node;
    ScanAttrs attrs = *scan;
    attrs.body = body_with_addends(*scan, folds);
    attrs.slices += static_cast<std::int64_t>(folds.size());
    with.attrs = attrs;
    auto at = with.operands.begin() + scan->carries + scan->slices;
    for (const Fold& f : folds) at = with.operands.insert(at, f.addend) + 1;
    clone.clone_node(with);
    for (const Fold& f : folds) {
      clone.map(f.sum, clone[node.first_result + f.result]);
      clone.clone_annotations(f.sum);
    }
  }
  clone.finish();
  for (const Output& o : p.outputs()) out.output(o.name, clone[o.value]);
  return out;
}

}  // namespace dew
