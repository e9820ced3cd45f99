#include "dew/compile.h"

#include "dew/autodiff/simplify.h"
#include "dew/base/error.h"
#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/ir/rewrite.h"
#include "dew/ir/tensor.h"
#include "dew/partition/account.h"
#include "dew/partition/process_program.h"
#include "dew/plan/plan.h"

namespace dew {
namespace {

struct Pass {
  const char* name;
  Program (*run)(const Program&);
};

constexpr Pass kPasses[] = {
    {"without_duplicates", without_duplicates},
    {"simplify", simplify},
    {"accumulate_in_scans", accumulate_in_scans},
    {"without_dead_code", without_dead_code},
};

void dump(const Dump& to, const std::string& name, const std::string& text) {
  if (to) to(name, text);
}

}  // namespace

Dump dump_into(const std::string& directory) {
  if (directory.empty()) return {};
  return [directory](const std::string& name, const std::string& text) {
    write_file_atomic(directory + "/" + name + ".txt", text, ErrorCode::checkpoint);
  };
}

Program optimize(const Program& program, const Dump& to) {
  Program p = program;
  dump(to, p.name() + ".0", print(p));
  int number = 0;
  for (const Pass& pass : kPasses) {
    p = pass.run(p);
    dump(to, format("{}.{}_{}", p.name(), ++number, pass.name), print(p));
  }
  verify(p);
  return p;
}

DeviceMemory device_memory(const Module& module) {
  DeviceMemory memory;
  for (const Register& r : module.registers) memory.registers += r.type.bytes();
  for (std::size_t p = 0; p < module.programs.size(); ++p) {
    const Plan plan = make_plan(memory_stand_in(module.programs[p]),
                                replaced_inputs(module, static_cast<int>(p)));
    memory.arena = std::max(memory.arena, plan.arena_bytes);
  }
  return memory;
}

std::unique_ptr<Executable> compile(Module module, Backend& backend,
                                    const CompileOptions& options) {
  for (Program& p : module.programs) p = optimize(p, options.dump);
  Placed placed{.mesh = options.placement.mesh, .check_replicas = options.check_replicas};
  if (!placed.mesh.atoms.empty()) {
    Partitioned parts = partition(module, options.placement);
    if (options.dump) options.dump("specs", annotated(module, options.placement.mesh, parts));
    for (const Detour& detour : parts.detours) {
      if (options.remark) options.remark(to_string(options.placement.mesh, detour));
    }
    for (const Program& p : parts.module.programs)
      dump(options.dump, p.name() + ".device", print(p));
    if (Processes& processes = backend.processes(); processes.count() > 1) {
      const ProcessGrid grid = process_grid(placed.mesh, processes.count());
      parts = for_process(std::move(parts), grid);
      placed.mesh = grid.mesh;
      placed.place = grid.place(processes.rank());
    }
    module = std::move(parts.module);
    placed.registers = std::move(parts.registers);
    placed.stacked = std::move(parts.stacked);
  }
  std::unique_ptr<Executable> executable = backend.load(std::move(module), std::move(placed));
  dump(options.dump, "plans", executable->describe());
  return executable;
}

std::vector<Array> run_program(const Program& program, std::span<const Array> inputs,
                               Backend& backend) {
  DEW_CHECK(
      inputs.size() == program.inputs().size(),
      format("{}: {} inputs, {} given", program.name(), program.inputs().size(), inputs.size()));
  Module module;
  Call call{.program = 0, .inputs = {}, .outputs = {}, .sliced = {}, .micro = 0};
  const auto bind = [&](const std::string& name, int id, std::vector<int>& list) {
    list.push_back(module.add_register(name, program.values()[static_cast<std::size_t>(id)].type));
  };
  for (const int id : program.inputs()) {
    bind("in/" + program.values()[static_cast<std::size_t>(id)].name, id, call.inputs);
    call.sliced.push_back(false);
  }
  for (const Output& o : program.outputs()) bind("out/" + o.name, o.value, call.outputs);
  module.programs.push_back(program);
  module.lists.push_back({"run", {call}});
  const std::unique_ptr<Executable> executable = compile(std::move(module), backend);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Type& type =
        executable->module().registers[static_cast<std::size_t>(call.inputs[i])].type;
    DEW_CHECK(inputs[i].shape == type.shape,
              format("input {} is [{}], not {}", i, join(inputs[i].shape), to_string(type)));
    store(inputs[i], type.dtype, executable->shards(call.inputs[i]).front().bytes.data());
  }
  executable->run(0);
  std::vector<Array> outputs;
  for (const int reg : call.outputs) {
    const Type& type = executable->module().registers[static_cast<std::size_t>(reg)].type;
    outputs.push_back(load(type, executable->shards(reg).front().bytes.data()));
  }
  return outputs;
}

}  // namespace dew
