// The walk as text: a program and where its inputs live, and below it what each mesh makes of it,
// the spec of every value at the end of its line. Regenerate with DEW_REWRITE_WALKS=1 and read the
// difference: every line must follow from the rules in docs/sharding.md.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dew/autodiff/grad.h"
#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "tests/sharding/placements.h"

namespace dew {
namespace {

const Path kWalks = "tests/data/walks";

// The logical names of the dimensions of the files' inputs.
const std::map<std::string, AxisNames>& axes_of_inputs() {
  const AxisNames tokens = {"activation_batch", "activation_length"};
  static const std::map<std::string, AxisNames> axes = {
      {"x", {"activation_batch", "activation_length", ""}},
      {"positions", tokens},
      {"segments", tokens},
      {"ids", tokens},
      {"labels", tokens},
      {"weights", tokens},
      {"norm", {"embed"}},
      {"gate", {"embed", "mlp"}},
      {"up", {"embed", "mlp"}},
      {"down", {"mlp", "embed"}},
      {"q", {"embed", "heads", "head_dim"}},
      {"k", {"embed", "kv", "head_dim"}},
      {"v", {"embed", "kv", "head_dim"}},
      {"o", {"attention", "embed"}},
      {"table", {"vocab", "embed"}}};
  return axes;
}

Placement place_inputs(const Program& program, const Mesh& mesh) {
  Placement placement{.mesh = mesh};
  for (const int id : program.inputs()) {
    const ValueInfo& input = program.values()[static_cast<std::size_t>(id)];
    const auto& rules =
        input.weight ? sharding_test::parameter_rules() : sharding_test::activation_rules();
    const DimAtoms dims =
        sharding_test::dims_by(mesh, rules, input.type.shape, axes_of_inputs().at(input.name));
    placement.registers.emplace_back(Spec{dims, 0});
  }
  placement.pin = [mesh](const Dims& shape, const AxisNames& names) {
    return sharding_test::dims_by(mesh, sharding_test::activation_rules(), shape, names);
  };
  return placement;
}

// Appends the gradients of output "loss" with respect to all weights.
void add_gradients(Program& program) {
  std::vector<Value> weights;
  std::vector<std::string> names;
  for (const int id : program.inputs()) {
    const ValueInfo& input = program.values()[static_cast<std::size_t>(id)];
    if (!input.weight) continue;
    weights.push_back(program.value(id));
    names.push_back("d" + input.name);
  }
  const Value loss = program.value(program.outputs().front().value);
  const std::vector<Value> grads = gradients(program, loss, weights);
  for (std::size_t i = 0; i < grads.size(); ++i) program.output(names[i], grads[i]);
}

std::string walk(const Program& given, const Mesh& mesh) {
  const Placement placement = place_inputs(given, mesh);
  Program program = given;
  add_gradients(program);
  Module module;
  module.programs.push_back(without_dead_code(simplify(program)));
  CallList list{"run", {}};
  for (const int id : module.programs[0].inputs()) {
    const ValueInfo& input = module.programs[0].values()[static_cast<std::size_t>(id)];
    module.add_register(input.name, input.type);
  }
  for (const Output& o : module.programs[0].outputs()) {
    module.add_register(o.name,
                        module.programs[0].values()[static_cast<std::size_t>(o.value)].type);
  }
  add_call(module, list, 0);
  module.lists.push_back(list);
  const Partitioned parts = partition(module, placement);
  EXPECT_TRUE(parts.detours.empty());
  return annotated(module, mesh, parts);
}

struct NamedMesh {
  const char* name;
  Mesh mesh;
};

std::vector<NamedMesh> meshes() {
  return {{"data=2", build_mesh({}, 2)},
          {"fsdp=2", build_mesh({.fsdp = 2}, 2)},
          {"tensor=2", build_mesh({.tensor = 2}, 2)},
          {"fsdp=2 tensor=2", build_mesh({.fsdp = 2, .tensor = 2}, 4)},
          {"data=2 fsdp=2", build_mesh({.fsdp = 2}, 4)},
          {"tensor=4, two kv heads", split_axis(build_mesh({.tensor = 4}, 4), kTensor, 2)}};
}

class Walk : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, Walk, testing::Values("mlp", "attention", "embedding_loss"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Walk, PlacesEveryValue) {
  const Path file = kWalks / (std::string(GetParam()) + ".txt");
  const std::string text = read_file(file, ErrorCode::internal, 1 << 20);
  const std::string source = text.substr(0, text.find("\n== "));
  const Program program = parse(source, all_ops());
  std::string found = source + "\n";
  for (const NamedMesh& m : meshes()) found += format("== {}\n{}", m.name, walk(program, m.mesh));
  if (std::getenv("DEW_REWRITE_WALKS") != nullptr)
    write_file_atomic(file, found, ErrorCode::internal);
  EXPECT_EQ(found, text) << file;
}

}  // namespace
}  // namespace dew
