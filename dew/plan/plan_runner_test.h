// Runs a plan with the rows' reference functions on real memory, so that tests judge a plan (views,
// sharing, offsets) without any kernel.
#pragma once

#include <utility>
#include <vector>

#include "dew/base/error.h"
#include "dew/ir/tensor.h"
#include "dew/ops/ops.h"
#include "dew/plan/passes.h"
#include "dew/plan/plan.h"

namespace dew::plan_test {

class PlanRunner {
 public:
  // `replaces` as given to make_plan; outputs then share the memory of the inputs that they
  // replace.
  PlanRunner(const Program& program, const Plan& plan, std::vector<int> replaces)
      : program_(program), plan_(plan) {
    memory_.resize(plan.buffers.size());
    arena_.assign(static_cast<std::size_t>(plan.arena_bytes),
                  std::byte{0xff});  // NaN until written
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      if (buffer.kind != BufferKind::arena)
        memory_[b].resize(static_cast<std::size_t>(buffer.type.bytes()), std::byte{0xff});
      if (buffer.kind == BufferKind::constant)
        store(buffer.op->reference(buffer.attrs, {}, {&buffer.type, 1})[0], buffer.type.dtype,
              memory_[b].data());
    }
    replaces_ = std::move(replaces);
  }

  std::vector<Array> run(const std::vector<Array>& inputs) {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.kind == BufferKind::input)
        store(inputs[static_cast<std::size_t>(buffer.index)], buffer.type.dtype,
              address(static_cast<int>(b)));
    }
    auto loop = plan_.loops.begin();
    for (int s = 0; s < static_cast<int>(plan_.steps.size());) {
      if (loop == plan_.loops.end() || loop->first != s) {
        run_step(plan_.steps[static_cast<std::size_t>(s++)], 0);
        continue;
      }
      for (std::int64_t trip = 0; trip < loop->trips; ++trip) {
        const std::int64_t i = loop->reverse ? loop->trips - 1 - trip : trip;
        for (int t = loop->first; t <= loop->last; ++t)
          run_step(plan_.steps[static_cast<std::size_t>(t)], i);
      }
      s = loop->last + 1;
      ++loop;
    }
    std::vector<Array> outputs(program_.outputs().size());
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.kind == BufferKind::output)
        outputs[static_cast<std::size_t>(buffer.index)] =
            load(buffer.type, address(static_cast<int>(b)));
    }
    return outputs;
  }

 private:
  std::byte* address(int b) {
    const Buffer& buffer = plan_.buffers[static_cast<std::size_t>(b)];
    if (buffer.kind == BufferKind::arena) return arena_.data() + buffer.offset;
    if (buffer.kind == BufferKind::output &&
        replaces_[static_cast<std::size_t>(buffer.index)] >= 0) {
      for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
        const Buffer& other = plan_.buffers[i];
        if (other.kind == BufferKind::input &&
            other.index == replaces_[static_cast<std::size_t>(buffer.index)])
          return memory_[i].data();
      }
    }
    return memory_[static_cast<std::size_t>(b)].data();
  }

  template <class Visit>
  void each_element(const View& v, std::int64_t iteration, Visit visit) {
    if (v.type.elements() == 0) return;  // an empty buffer has no address to step from
    const std::int64_t size = byte_size(v.type.dtype);
    std::byte* base = address(v.buffer) + (v.offset + iteration * v.loop_stride) * size;
    for_each_index(v.type.shape, [&](const Dims& index) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * v.strides[d];
      visit(base + at * size);
    });
  }

  Array read(const View& v, std::int64_t iteration) {
    Array out(v.type.shape);
    std::size_t i = 0;
    each_element(v, iteration, [&](const std::byte* p) {
      out.data[i++] = load({v.type.dtype, {}}, p).data[0];
    });
    return out;
  }

  void write(const View& v, std::int64_t iteration, const Array& a) {
    std::size_t i = 0;
    each_element(v, iteration, [&](std::byte* p) {
      Array one(Dims{});
      one.data[0] = a.data[i++];
      store(one, v.type.dtype, p);
    });
  }

  void run_step(const Step& step, std::int64_t iteration) {
    for_each_index(step.outer, [&](const Dims& position) {
      Step here = step;
      here.outer.clear();
      for (auto* views : {&here.inputs, &here.outputs}) {
        for (View& v : *views) {
          for (std::size_t d = 0; d < position.size(); ++d) v.offset += position[d] * v.outer[d];
          v.outer.clear();
        }
      }
      run_at(here, iteration);
    });
  }

  void run_at(const Step& step, std::int64_t iteration) {
    check_overlaps(step, iteration);
    std::vector<Array> in, out;
    std::vector<Type> types;
    for (const View& v : step.inputs) in.push_back(read(v, iteration));
    for (const View& v : step.outputs) types.push_back(v.type);
    if (step.op == nullptr) {
      out = step.group.ops.empty() ? in : run_group(step.group, in);
    } else {
      const bool adds = step.op == &dot_op && in.size() == 3;
      const std::vector<Array> operands(in.begin(), in.end() - (adds ? 1 : 0));
      out = step.op->reference(step.attrs, operands, types);
      for (std::size_t k = 0; adds && k < out[0].data.size(); ++k) out[0].data[k] += in[2].data[k];
    }
    for (std::size_t o = 0; o < step.outputs.size(); ++o) write(step.outputs[o], iteration, out[o]);
  }

  std::pair<const std::byte*, const std::byte*> range(const View& v, std::int64_t iteration) {
    const std::byte *first = nullptr, *last = nullptr;
    each_element(v, iteration, [&](const std::byte* p) {
      first = first == nullptr || p < first ? p : first;
      last = last == nullptr || p > last ? p : last;
    });
    return {first, last};
  }

  // A kernel writes while it reads: an output may touch an input only as the same view, in a step
  // that works in place. (Everything is read first here, which would hide that.)
  void check_overlaps(const Step& step, std::int64_t iteration) {
    for (std::size_t o = 0; o < step.outputs.size(); ++o) {
      const auto [out_first, out_last] = range(step.outputs[o], iteration);
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const auto [in_first, in_last] = range(step.inputs[i], iteration);
        if (out_first == nullptr || in_first == nullptr || out_last < in_first ||
            in_last < out_first) {
          continue;
        }
        const bool same = out_first == in_first && out_last == in_last &&
                          step.inputs[i].strides == step.outputs[o].strides;
        const bool in_place =
            works_in_place(step, i, o) || (step.op == &dot_op && i == 2 && step.inputs.size() == 3);
        DEW_CHECK(same && in_place, step.name + " overwrites what it reads\n" + print(plan_));
      }
    }
  }

  static std::vector<Array> run_group(const FusedGroup& group, std::vector<Array> registers) {
    for (const MicroOp& op : group.ops) {
      std::vector<Array> operands;
      for (const int r : op.registers) operands.push_back(registers[static_cast<std::size_t>(r)]);
      const Type type{op.dtype, group.shape};
      registers.push_back(op.op->reference(op.attrs, operands, {&type, 1})[0]);
    }
    std::vector<Array> out;
    for (const int r : group.outputs) out.push_back(registers[static_cast<std::size_t>(r)]);
    return out;
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<int> replaces_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte> arena_;
};

}  // namespace dew::plan_test
