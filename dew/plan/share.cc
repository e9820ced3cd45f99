#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/plan/passes.h"

namespace dew {
namespace {

struct Access {
  int step = 0;
  bool write = false;
  std::size_t operand = 0;  // number among the step's inputs or outputs
};

class Sharing {
 public:
  Sharing(Draft& draft, std::span<const int> replaces)
      : plan_(draft.plan),
        scopes_(draft.scopes),
        accesses_(plan_.buffers.size()),
        partner_(plan_.buffers.size(), -1),
        removed_(plan_.steps.size(), false) {
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      for (std::size_t i = 0; i < plan_.steps[s].inputs.size(); ++i)
        record(plan_.steps[s].inputs[i], s, false, i);
      for (std::size_t o = 0; o < plan_.steps[s].outputs.size(); ++o)
        record(plan_.steps[s].outputs[o], s, true, o);
    }
    find_partners(replaces);
  }

  void run() {
    for (std::size_t s = plan_.steps.size(); s-- > 0;) share_at(static_cast<int>(s));
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) fold_addition(static_cast<int>(s));
    check_replaced_inputs();
    drop_removed();
  }

 private:
  Step& step(int s) { return plan_.steps[static_cast<std::size_t>(s)]; }
  Buffer& buffer(int b) { return plan_.buffers[static_cast<std::size_t>(b)]; }
  std::vector<Access>& accesses(int b) { return accesses_[static_cast<std::size_t>(b)]; }

  void record(const View& v, std::size_t s, bool write, std::size_t operand) {
    accesses(v.buffer).push_back({static_cast<int>(s), write, operand});
  }

  // The input buffer and the output buffer that are one array of the caller.
  void find_partners(std::span<const int> replaces) {
    for (std::size_t o = 0; o < plan_.buffers.size(); ++o) {
      if (plan_.buffers[o].kind != BufferKind::output) continue;
      const int input = replaces[static_cast<std::size_t>(plan_.buffers[o].index)];
      for (std::size_t i = 0; input >= 0 && i < plan_.buffers.size(); ++i) {
        if (plan_.buffers[i].kind != BufferKind::input || plan_.buffers[i].index != input) continue;
        partner_[o] = static_cast<int>(i);
        partner_[i] = static_cast<int>(o);
      }
    }
  }

  const View& view_of(const Access& a) {
    return a.write ? step(a.step).outputs[a.operand] : step(a.step).inputs[a.operand];
  }

  int loop_of(int s) const {
    for (std::size_t l = 0; l < plan_.loops.size(); ++l) {
      if (s >= plan_.loops[l].first && s <= plan_.loops[l].last) return static_cast<int>(l);
    }
    return -1;
  }

  bool same_memory(const View& x, const View& y) const {
    const bool one =
        x.buffer == y.buffer || partner_[static_cast<std::size_t>(x.buffer)] == y.buffer;
    return one && x.offset == y.offset && x.loop_stride == y.loop_stride &&
           x.strides == y.strides && x.outer == y.outer;
  }

  static bool is_copy(const Step& s) { return s.op == nullptr && s.group.ops.empty(); }

  // Lets the maker of an input of step s write where the step's output goes.
  void share_at(int s) {
    const bool copy = is_copy(step(s));
    for (std::size_t o = 0; o < step(s).outputs.size(); ++o) {
      for (std::size_t i = 0; i < step(s).inputs.size(); ++i) {
        if (!copy && !works_in_place(step(s), i, o)) continue;
        if (!copy && already_in_place(s, o)) break;
        if (!may_redirect(s, i, o, copy)) continue;
        redirect(step(s).inputs[i].buffer, step(s).outputs[o]);  // its outer strides are not used
        if (copy) remove(s);
        break;
      }
      if (copy) return;
    }
  }

  bool already_in_place(int s, std::size_t o) {
    const Step& st = step(s);
    return std::ranges::any_of(st.inputs,
                               [&](const View& in) { return same_memory(in, st.outputs[o]); });
  }

  // `v` is what a step sees at all positions.
  bool covers_whole(const View& v) {
    const Buffer& b = buffer(v.buffer);
    return v.offset == 0 && v.loop_stride == 0 && is_dense(v) && v.type.bytes() == b.type.bytes();
  }

  bool may_redirect(int s, std::size_t i, std::size_t o, bool copy) {
    const View from = at_all_positions(step(s), step(s).inputs[i]);
    const View to = at_all_positions(step(s), step(s).outputs[o]);
    const BufferScope& scope = scopes_[static_cast<std::size_t>(from.buffer)];
    if (buffer(from.buffer).kind != BufferKind::arena || from.buffer == to.buffer) return false;
    if (!covers_whole(from) || !is_dense(to)) return false;
    if (scope.loop != loop_of(s)) return false;
    int first_write = s;
    int last_access = -1;
    for (const Access& a : accesses(from.buffer)) {
      if (a.write) first_write = std::min(first_write, a.step);
      // A loop that is no iteration of `from` reads it in every iteration.
      const int loop = loop_of(a.step);
      const bool whole_loop = loop >= 0 && loop != scope.loop;
      last_access = std::max(
          last_access, whole_loop ? plan_.loops[static_cast<std::size_t>(loop)].last : a.step);
    }
    if (!copy && last_access > s) return false;
    return no_conflict(from, to, s, first_write, last_access);
  }

  // From the first write of `from` on, nothing else may touch the memory of `to` until step s has
  // run, and nothing may write it while `from` is still read.
  bool no_conflict(const View& from, const View& to, int s, int first_write, int last_access) {
    const int partner = partner_[static_cast<std::size_t>(to.buffer)];
    for (const int b : {to.buffer, partner}) {
      if (b < 0) continue;
      for (const Access& a : accesses(b)) {
        const bool own = b == to.buffer && a.write && a.step == s;
        if (!own && !compatible(a, from, to, s, first_write, last_access)) return false;
      }
    }
    return true;
  }

  bool compatible(const Access& a, const View& from, const View& to, int s, int first_write,
                  int last_access) {
    const int loop = loop_of(first_write);
    if (loop >= 0 && loop_of(a.step) == loop) {
      // Iterations repeat: what one of them touches must be the part that it replaces. `from` may
      // itself be stacked.
      const View& w = writer_view(from.buffer, first_write);
      if (view_of(a).loop_stride != to.loop_stride + w.loop_stride) return false;
      if (scopes_[static_cast<std::size_t>(to.buffer)].carried && to.loop_stride == 0 && a.write &&
          a.step < first_write)
        return false;
    }
    if (a.step < first_write) return true;
    if (a.step == first_write) return !a.write && in_place_there(a, from, to, first_write);
    if (a.step <= s) return false;
    return !a.write || a.step > last_access;
  }

  const View& writer_view(int b, int first_write) {
    for (const Access& a : accesses(b)) {
      if (a.write && a.step == first_write) return view_of(a);
    }
    return plan_.steps.front().outputs.front();  // not reached: every arena buffer has a writer
  }

  // The maker of `from` reads the memory it is about to overwrite, element by element.
  bool in_place_there(const Access& a, const View& from, const View& to, int first_write) {
    const Step& maker = step(first_write);
    for (std::size_t o = 0; o < maker.outputs.size(); ++o) {
      if (maker.outputs[o].buffer != from.buffer) continue;
      View moved = maker.outputs[o];
      moved.buffer = to.buffer;
      moved.offset += to.offset;
      moved.loop_stride += to.loop_stride;
      return works_in_place(maker, a.operand, o) && same_memory(view_of(a), moved);
    }
    return false;
  }

  void redirect(int from, const View& target) {
    const View to = target;  // a copy: the step's own views change
    for (const Access& a : accesses(from)) {
      View& v = a.write ? step(a.step).outputs[a.operand] : step(a.step).inputs[a.operand];
      v.buffer = to.buffer;
      v.offset += to.offset;
      v.loop_stride += to.loop_stride;
      accesses(to.buffer).push_back(a);
    }
    accesses(from).clear();
  }

  void remove(int s) {
    removed_[static_cast<std::size_t>(s)] = true;
    for (std::vector<Access>& list : accesses_) {
      std::erase_if(list, [s](const Access& a) { return a.step == s; });
    }
    step(s).inputs.clear();
    step(s).outputs.clear();
  }

  // dot -> d; add(x, d) in place of x: one product that adds.
  void fold_addition(int s) {
    Step& sum = step(s);
    if (removed_[static_cast<std::size_t>(s)] || sum.group.ops.size() != 1 ||
        sum.group.ops[0].op != &add_op)
      return;
    if (sum.inputs.size() != 2 || sum.outputs.size() != 1) return;
    for (std::size_t i = 0; i < 2; ++i) {
      const View d = sum.inputs[i], x = sum.inputs[1 - i];
      const int maker = product_of(d.buffer, s);
      if (maker < 0 || !covers_whole(d) || !same_memory(x, sum.outputs[0]) || !is_dense(x))
        continue;
      if (!inputs_unchanged(maker, s)) continue;
      // d and x are both dense: what the product writes of d, it adds to the same of x.
      Step product = step(maker);
      View& to = product.outputs[0];
      to.buffer = sum.outputs[0].buffer;
      to.offset += sum.outputs[0].offset;
      to.loop_stride += sum.outputs[0].loop_stride;
      product.inputs.push_back(to);
      product.name += " +=";
      remove(maker);
      remove(s);
      removed_[static_cast<std::size_t>(s)] = false;
      step(s) = std::move(product);
      for (std::size_t k = 0; k < step(s).inputs.size(); ++k)
        record(step(s).inputs[k], static_cast<std::size_t>(s), false, k);
      record(step(s).outputs[0], static_cast<std::size_t>(s), true, 0);
      return;
    }
  }

  // The dot step that alone writes b, if step s alone reads it and both are in the same loop or
  // none; else -1.
  int product_of(int b, int s) {
    if (buffer(b).kind != BufferKind::arena || accesses(b).size() != 2) return -1;
    for (const Access& a : accesses(b)) {
      if (a.write && step(a.step).op == &dot_op && step(a.step).inputs.size() == 2 &&
          loop_of(a.step) == loop_of(s))
        return a.step;
    }
    return -1;
  }

  bool inputs_unchanged(int maker, int s) {
    for (const View& in : step(maker).inputs) {
      for (const int b : {in.buffer, partner_[static_cast<std::size_t>(in.buffer)]}) {
        if (b < 0) continue;
        for (const Access& a : accesses(b)) {
          if (a.write && a.step > maker && a.step <= s) return false;
        }
      }
    }
    return true;
  }

  // A replaced input must not be read after its output has been written, nor by the same step other
  // than element by element.
  void check_replaced_inputs() {
    for (std::size_t o = 0; o < plan_.buffers.size(); ++o) {
      if (plan_.buffers[o].kind != BufferKind::output || partner_[o] < 0) continue;
      for (const Access& w : accesses_[o]) {
        for (const Access& r : accesses_[static_cast<std::size_t>(partner_[o])]) {
          const bool fine = !w.write || r.step < w.step || (r.step == w.step && in_place_at(r, w));
          DEW_CHECK(fine, format("{}: output {} replaces an input that {} reads later", plan_.name,
                                 plan_.buffers[o].index, step(r.step).name));
        }
      }
    }
  }

  bool in_place_at(const Access& r, const Access& w) {
    const Step& st = step(w.step);
    if (!same_memory(st.inputs[r.operand], st.outputs[w.operand])) return false;
    return works_in_place(st, r.operand, w.operand) || (st.op == &dot_op && r.operand == 2);
  }

  void drop_removed() {
    std::vector<int> kept_before(plan_.steps.size() + 1, 0);
    std::vector<Step> kept;
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      kept_before[s] = static_cast<int>(kept.size());
      if (!removed_[s]) kept.push_back(std::move(plan_.steps[s]));
    }
    kept_before.back() = static_cast<int>(kept.size());
    for (LoopRange& l : plan_.loops) {
      l.first = kept_before[static_cast<std::size_t>(l.first)];
      l.last = kept_before[static_cast<std::size_t>(l.last) + 1] - 1;
    }
    plan_.steps = std::move(kept);
  }

  Plan& plan_;
  std::vector<BufferScope>& scopes_;
  std::vector<std::vector<Access>> accesses_;
  std::vector<int> partner_;
  std::vector<bool> removed_;
};

}  // namespace

bool works_in_place(const Step& step, std::size_t input, std::size_t output) {
  const View &in = step.inputs[input], &out = step.outputs[output];
  if (byte_size(in.type.dtype) != byte_size(out.type.dtype)) return false;
  const bool same_elements =
      in.type.shape == out.type.shape && in.strides == out.strides && in.outer == out.outer;
  if (!same_elements) return false;
  if (step.op != nullptr && step.op->has(kAccumulates)) {
    const auto reads = [&](const View& v) { return v.buffer == in.buffer; };
    return input == 0 && output == 0 && std::ranges::count_if(step.inputs, reads) == 1;
  }
  if (step.op != nullptr && !(step.op->has(kUpdate) && input == output)) return false;
  // Another view of the same buffer, or another output in its place, would see half-written
  // elements.
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const View& other = step.inputs[i];
    if (i != input && other.buffer == in.buffer &&
        (other.strides != in.strides || other.offset != in.offset || other.outer != in.outer))
      return false;
  }
  return true;
}

void share_buffers(Draft& draft, std::span<const int> replaces) { Sharing(draft, replaces).run(); }

}  // namespace dew
