#include "dew/generate/programs.h"

#include "dew/base/error.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

namespace names = generation;

struct CacheTypes {
  Type contents, marks;  // keys or values; positions or segments
};

CacheTypes cache_types(const models::TransformerConfig& c, const CacheShape& s, DType compute) {
  return {{compute, {c.num_layers, s.rows, s.capacity, c.num_kv_heads, c.head_dim}},
          {DType::i32, {s.rows, s.capacity}}};
}

// states [b, t, e], last i32[b] -> [b, 1, e]. Selected and not multiplied: what pads hold is
// nobody's business.
Value pick_columns(Value states, Value last) {
  Program& program = *states.program;
  const std::int64_t rows = states.dim(0), tokens = states.dim(1);
  if (tokens == 1) return states;
  const Value numbers = iota(program, {DType::i32, {rows, tokens}}, 1);
  const Value wanted = equal(numbers, broadcast(last, {rows, tokens}, {0}));
  const Value chosen =
      select(broadcast(wanted, states.shape(), {0, 1}), states, zeros_like(states));
  return reshape(reduce_sum(chosen, {1}), {rows, 1, states.dim(2)});
}

void add_registers(Module& module, const std::string& program, std::int64_t rows,
                   std::int64_t tokens) {
  for (const char* name : {names::kIds, names::kPositions, names::kSegments, names::kColumns})
    module.add_register(program + name, {DType::i32, {rows, tokens}});
  module.add_register(program + names::kLast, {DType::i32, {rows}});
}

}  // namespace

DType parameter_dtype(const ParamSpec& param, DType compute) {
  return param.kind == ParamKind::vector ? DType::f32 : compute;
}

Program generation_program(const models::CausalTransformer& model, const CacheShape& shape,
                           const std::string& name, std::int64_t tokens, DType compute) {
  Program program(name);
  models::TransformerInputs in;
  for (const ParamSpec& param : model.params()) {
    in.params[param.name] =
        program.input(registers::parameter(param.name),
                      {parameter_dtype(param, compute), param.type.shape}, true);
  }
  const Type token = {DType::i32, {shape.rows, tokens}};
  in.ids = program.input(name + names::kIds, token);
  in.positions = program.input(name + names::kPositions, token);
  in.segments = program.input(name + names::kSegments, token);
  in.columns = program.input(name + names::kColumns, token);
  const Value last = program.input(name + names::kLast, {DType::i32, {shape.rows}});
  const CacheTypes types = cache_types(model.config(), shape, compute);
  in.cache = {.keys = program.input(names::kCachedKeys, types.contents),
              .values = program.input(names::kCachedValues, types.contents),
              .positions = program.input(names::kCachedPositions, types.marks),
              .segments = program.input(names::kCachedSegments, types.marks)};
  in.compute = compute;
  models::TransformerOutputs out = model.forward(in);
  out.states = pick_columns(out.states, last);
  const Value scores = logits(out.states, out.table, model.config().logit_softcap);
  program.output(names::kLogits, reshape(scores, {shape.rows, model.config().vocab_size}));
  program.output(names::kCachedKeys, out.cache.keys);
  program.output(names::kCachedValues, out.cache.values);
  program.output(names::kCachedPositions, out.cache.positions);
  program.output(names::kCachedSegments, out.cache.segments);
  return program;
}

Module generation_module(const models::CausalTransformer& model, const CacheShape& shape,
                         DType compute) {
  DEW_CHECK(compute == DType::f32 || compute == DType::bf16,
            "compute type " + std::string(name(compute)));
  Module module;
  for (const ParamSpec& param : model.params()) {
    module.add_register(registers::parameter(param.name),
                        {parameter_dtype(param, compute), param.type.shape});
  }
  const CacheTypes types = cache_types(model.config(), shape, compute);
  module.add_register(names::kCachedKeys, types.contents);
  module.add_register(names::kCachedValues, types.contents);
  module.add_register(names::kCachedPositions, types.marks);
  module.add_register(names::kCachedSegments, types.marks);
  module.add_register(names::kLogits, {DType::f32, {shape.rows, model.config().vocab_size}});
  const auto add = [&](const char* name, std::int64_t tokens) {
    add_registers(module, name, shape.rows, tokens);
    module.programs.push_back(generation_program(model, shape, name, tokens, compute));
    CallList list{.name = name, .calls = {}};
    add_call(module, list, static_cast<int>(module.programs.size()) - 1);
    module.lists.push_back(std::move(list));
  };
  add(names::kDecode, 1);
  if (shape.chunk > 1) add(names::kPrefill, shape.chunk);
  return module;
}

}  // namespace dew
