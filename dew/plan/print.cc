#include "dew/base/format.h"
#include "dew/plan/plan.h"

namespace dew {
namespace {

std::string place(const Plan& plan, const View& v) {
  const Buffer& b = plan.buffers[static_cast<std::size_t>(v.buffer)];
  std::string text;
  switch (b.kind) {
    case BufferKind::arena:
      text = format("@{}", b.offset);
      break;
    case BufferKind::input:
      text = format("in{}", b.index);
      break;
    case BufferKind::output:
      text = format("out{}", b.index);
      break;
    case BufferKind::constant:
      text = format("const{}", v.buffer);
      break;
    case BufferKind::count:
      text = "count";
      break;
  }
  if (v.offset != 0) text += format("+{}", v.offset);
  if (v.loop_stride != 0) text += format("+i*{}", v.loop_stride);
  text += ":" + to_string(v.type);
  if (!is_dense(v)) text += "/" + join(v.strides);
  return text;
}

std::string places(const Plan& plan, const std::vector<View>& views) {
  std::string text;
  for (const View& v : views) text += (text.empty() ? "" : " ") + place(plan, v);
  return text;
}

std::string group_text(const FusedGroup& group) {
  std::string text;
  int next = static_cast<int>(group.inputs.size());
  for (const MicroOp& op : group.ops) {
    std::string registers;
    for (const int r : op.registers) registers += format("{}r{}", registers.empty() ? "" : ",", r);
    text += format(" r{}={}({})", next++, op.op->name, registers);
  }
  return text;
}

}  // namespace

std::string print(const Plan& plan) {
  std::string out =
      format("plan {}: {} steps, arena {} bytes\n", plan.name, plan.steps.size(), plan.arena_bytes);
  std::string indent = "  ";
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    for (const LoopRange& l : plan.loops) {
      if (l.first == static_cast<int>(s)) {
        out += format("  loop {}{}\n", l.trips, l.reverse ? " reverse" : "");
        indent = "    ";
      }
    }
    const Step& step = plan.steps[s];
    out += format("{}{}: {} -> {}{}\n", indent, step.name, places(plan, step.inputs),
                  places(plan, step.outputs), group_text(step.group));
    for (const LoopRange& l : plan.loops) {
      if (l.last == static_cast<int>(s)) {
        out += "  end\n";
        indent = "  ";
      }
    }
  }
  return out;
}

}  // namespace dew
