#include "dew/ir/module.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

template <class T>
int index_of(const std::vector<T>& items, std::string_view name, const char* what) {
  const auto it = std::ranges::find(items, name, &T::name);
  DEW_CHECK(it != items.end(), format("no {} named {}", what, name));
  return static_cast<int>(it - items.begin());
}

Type sliced_type(const Type& whole) {
  DEW_CHECK(whole.rank() > 0, "a sliced register needs a leading dimension");
  return {whole.dtype, Dims(whole.shape.begin() + 1, whole.shape.end())};
}

}  // namespace

int Module::add_register(std::string name, Type type) {
  DEW_CHECK(std::ranges::find(registers, name, &Register::name) == registers.end(),
            "register twice: " + name);
  registers.push_back({std::move(name), std::move(type)});
  return static_cast<int>(registers.size()) - 1;
}

int Module::register_index(std::string_view name) const {
  return index_of(registers, name, "register");
}

int Module::list_index(std::string_view name) const { return index_of(lists, name, "call list"); }

void add_call(Module& module, CallList& list, int program, const std::vector<std::string>& sliced,
              std::int64_t micro) {
  const Program& p = module.programs[static_cast<std::size_t>(program)];
  Call call{.program = program, .inputs = {}, .outputs = {}, .sliced = {}, .micro = micro};
  const auto bind = [&](const std::string& name, const Type& type, bool slice) {
    const int r = module.register_index(name);
    const Type& whole = module.registers[static_cast<std::size_t>(r)].type;
    const Type seen = slice ? sliced_type(whole) : whole;
    DEW_CHECK(seen == type, format("{}: {} is {} in the program, {} in its register", p.name(),
                                   name, to_string(type), to_string(seen)));
    return r;
  };
  for (const int id : p.inputs()) {
    const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
    const bool slice = std::ranges::find(sliced, info.name) != sliced.end();
    call.inputs.push_back(bind(info.name, info.type, slice));
    call.sliced.push_back(slice);
  }
  for (const Output& out : p.outputs()) {
    call.outputs.push_back(
        bind(out.name, p.values()[static_cast<std::size_t>(out.value)].type, false));
  }
  list.calls.push_back(std::move(call));
}

std::vector<int> replaced_inputs(const Module& module, int program) {
  std::vector<int> out;
  bool first = true;
  for (const CallList& list : module.lists) {
    for (const Call& call : list.calls) {
      if (call.program != program) continue;
      std::vector<int> replaces;
      for (const int reg : call.outputs) {
        const auto it = std::ranges::find(call.inputs, reg);
        replaces.push_back(it == call.inputs.end() ? -1
                                                   : static_cast<int>(it - call.inputs.begin()));
        DEW_CHECK(replaces.back() < 0 || !call.sliced[static_cast<std::size_t>(replaces.back())],
                  "an output replaces a sliced input");
      }
      DEW_CHECK(first || replaces == out, "calls of one program replace different inputs");
      out = std::move(replaces);
      first = false;
    }
  }
  out.resize(module.programs[static_cast<std::size_t>(program)].outputs().size(), -1);
  return out;
}

}  // namespace dew
