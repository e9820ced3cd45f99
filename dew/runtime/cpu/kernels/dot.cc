#include "dew/runtime/cpu/kernels/dot.h"

#include <variant>

#include "dew/runtime/cpu/kernels/dot_pack.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

// Nothing to do, or a sum without terms: zeros.
class EmptyDot : public Kernel {
 public:
  explicit EmptyDot(DotTask task) : task_(std::move(task)) { implementation_ = "empty product"; }

  void run(const KernelArgs& args, int, int) const noexcept override {
    const DotLoops& l = task_.loops;
    if (l.empty() || task_.accumulate) return;
    for (std::int64_t i = 0; i < l.batches(); ++i) {
      DotAddresses at{args.operands[task_.a], args.operands[task_.b], args.operands[task_.c]};
      at = move_by(at, l.batch, i, task_.in, task_.out);
      fill_zero({at.c, task_.out, l.m.c, l.n.c}, l.m.size, l.n.size);
    }
  }

 private:
  DotTask task_;
};

bool same_view(const View& x, const View& y) {
  return x.buffer == y.buffer && x.type == y.type && x.strides == y.strides &&
         x.offset == y.offset && x.loop_stride == y.loop_stride;
}

bool multiplies(DType t) { return t == DType::f32 || t == DType::bf16; }

std::string refusal(const Step& step) {
  if (step.inputs.size() < 2 || step.inputs.size() > 3 || step.outputs.size() != 1)
    return "dot: operands";
  const View &a = step.inputs[0], &b = step.inputs[1], &c = step.outputs[0];
  if (a.type.dtype != b.type.dtype || !multiplies(a.type.dtype))
    return "dot: operands must be both f32 or both bf16";
  if (c.type.dtype != DType::f32 && c.type.dtype != a.type.dtype)
    return "dot: result must be f32 or the operands' dtype";
  if (step.inputs.size() == 3 && !same_view(step.inputs[2], c))
    return "dot: the addend must be the result's view";
  return {};
}

}  // namespace

DotAddresses move_by(DotAddresses at, std::span<const DotLoop> loops, std::int64_t index, DType in,
                     DType out) {
  for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
    const std::int64_t i = index % l->size;
    index /= l->size;
    at.a += i * l->a * byte_size(in);
    at.b += i * l->b * byte_size(in);
    at.c += i * l->c * byte_size(out);
  }
  return at;
}

std::unique_ptr<Kernel> make_dot(const Step& step, std::string& why_not) {
  why_not = refusal(step);
  if (!why_not.empty()) return nullptr;
  DotTask task;
  task.loops =
      dot_loops(std::get<DotDims>(step.attrs), step.inputs[0], step.inputs[1], step.outputs[0]);
  task.in = step.inputs[0].type.dtype;
  task.out = step.outputs[0].type.dtype;
  task.accumulate = step.inputs.size() == 3;
  task.c = static_cast<int>(step.inputs.size());
  if (task.loops.empty() || task.loops.k.size * task.loops.terms() == 0)
    return std::make_unique<EmptyDot>(task);
  if (auto skinny = make_dot_skinny(task)) return skinny;
  return make_dot_tiles(task);
}

}  // namespace dew::cpu
