// What a runtime is given: programs, the arrays that outlive them, and static lists of calls.
#pragma once

#include <string>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

// An array that lives between calls: parameters, optimizer state, a batch, a scalar of the step, a
// metric.
struct Register {
  std::string name;
  Type type;
};

// One program run. Program input i reads register inputs[i]; program output i is written to
// register outputs[i]. An output whose register is also the register of an input replaces it in
// place (a donated input): that input's old contents are gone once the call has run. No register is
// the target of two outputs.
struct Call {
  int program = 0;
  std::vector<int> inputs, outputs;
  // The program sees element `micro` of the leading dimension of these inputs' registers ([A',
  // ...]); others are whole.
  std::vector<bool> sliced;
  std::int64_t micro = 0;
};

struct CallList {
  std::string name;  // "train", "eval"
  std::vector<Call> calls;
};

struct Module {
  std::vector<Register> registers;
  std::vector<Program> programs;
  std::vector<CallList> lists;

  int add_register(std::string name, Type type);    // names are unique
  int register_index(std::string_view name) const;  // internal error if there is none
  int list_index(std::string_view name) const;
};

// For each output of a program the number of the input that it replaces in place, or -1; the same
// in all its calls.
std::vector<int> replaced_inputs(const Module& module, int program);

// Appends a call of `program` whose inputs and outputs are bound to the registers of the same
// names; `sliced` names inputs that take slice `micro`. Types are checked.
void add_call(Module& module, CallList& list, int program,
              const std::vector<std::string>& sliced = {}, std::int64_t micro = 0);

}  // namespace dew
