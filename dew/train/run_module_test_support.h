// Runs a module's call lists with the reference interpreter, registers being arrays by name.
#pragma once

#include <string>

#include "dew/ir/module.h"
#include "dew/nn/plain_batch_test_support.h"

namespace dew::plain {

inline Array slice_of(const Array& whole, std::int64_t index) {
  Array part(Dims(whole.shape.begin() + 1, whole.shape.end()));
  const auto size = static_cast<std::ptrdiff_t>(part.data.size());
  part.data.assign(whole.data.begin() + index * size, whole.data.begin() + (index + 1) * size);
  return part;
}

inline void run_call(const Module& module, const Call& call, Arrays& registers) {
  const auto name = [&](int r) { return module.registers[static_cast<std::size_t>(r)].name; };
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    DEW_CHECK(registers.contains(name(call.inputs[i])), "no register " + name(call.inputs[i]));
    const Array& whole = registers.at(name(call.inputs[i]));
    inputs.push_back(call.sliced[i] ? slice_of(whole, call.micro) : whole);
  }
  const std::vector<Array> results =
      interpret(module.programs[static_cast<std::size_t>(call.program)], inputs);
  for (std::size_t i = 0; i < results.size(); ++i) registers[name(call.outputs[i])] = results[i];
}

inline void run_list(const Module& module, const std::string& list, Arrays& registers) {
  for (const Call& call : module.lists[static_cast<std::size_t>(module.list_index(list))].calls) {
    run_call(module, call, registers);
  }
}

// The arrays of a step from the batches of its micro steps.
inline void add_step(Arrays& registers, const std::vector<std::vector<Sequence>>& micro_steps) {
  Arrays all;
  for (const std::vector<Sequence>& batch : micro_steps) {
    Arrays one;
    add_batch(one, batch);
    for (const char* name : {"ids", "labels", "weights", "positions", "segments", "row_ids"}) {
      Array& to = all[name];
      to.shape = one[name].shape;
      to.data.insert(to.data.end(), one[name].data.begin(), one[name].data.end());
    }
    for (const char* name : {"columns", "key", "step"}) registers[name] = one[name];
  }
  for (auto& [name, array] : all) {
    array.shape.insert(array.shape.begin(), static_cast<std::int64_t>(micro_steps.size()));
    registers[name] = array;
  }
}

inline Array scalar(double value) { return Array(Dims{}, value); }

}  // namespace dew::plain
