#include "dew/train/step.h"

#include "dew/autodiff/grad.h"
#include "dew/base/error.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

const Type kScalar = {DType::f32, {}};

// Vectors stay f32 in every run.
bool is_cast(const ParamSpec& param, DType compute) {
  return compute != DType::f32 && param.kind != ParamKind::vector;
}

struct Named {
  std::string name;
  Type type;
};

// What a micro step sees of the batch, and which of it is a slice of the step's arrays.
std::vector<Named> sliced_inputs(const StepShape& s) {
  const Dims tokens = {s.rows, s.columns};
  return {
      {registers::kIds, {DType::i32, tokens}},      {registers::kLabels, {DType::i32, tokens}},
      {registers::kWeights, {DType::f32, tokens}},  {registers::kPositions, {DType::i32, tokens}},
      {registers::kSegments, {DType::i32, tokens}}, {registers::kRowIds, {DType::i32, {s.rows}}}};
}

std::vector<Named> whole_inputs(const StepShape& s) {
  return {{registers::kColumns, {DType::i32, {s.columns}}},
          {registers::kKey, {DType::u32, {2}}},
          {registers::kStep, {DType::i32, {}}}};
}

BatchValues batch_inputs(Program& program, const StepShape& shape) {
  for (const Named& in : sliced_inputs(shape)) program.input(in.name, in.type);
  for (const Named& in : whole_inputs(shape)) program.input(in.name, in.type);
  const auto at = [&](const char* name) { return program.find_input(name); };
  return {.ids = at(registers::kIds),
          .labels = at(registers::kLabels),
          .weights = at(registers::kWeights),
          .positions = at(registers::kPositions),
          .segments = at(registers::kSegments),
          .row_ids = at(registers::kRowIds),
          .columns = at(registers::kColumns),
          .key = at(registers::kKey),
          .step = at(registers::kStep)};
}

ParamValues param_inputs(Program& program, std::span<const ParamSpec> params, DType compute) {
  ParamValues values;
  for (const ParamSpec& param : params) {
    const bool cast = is_cast(param, compute);
    const std::string name = cast ? registers::cast(param.name) : registers::parameter(param.name);
    values[param.name] = program.input(name, {cast ? compute : DType::f32, param.type.shape}, true);
  }
  return values;
}

// `value` itself, or the register's contents plus it.
void output_sum(const std::string& name, Value value, bool accumulate, bool weight, int like = -1) {
  Program& program = *value.program;
  const auto place = [&](Value v) {
    if (like >= 0) program.set_like(v, like);
  };
  if (accumulate) {
    const Value before = program.input(name, value.type(), weight);
    place(before);
    value = add(before, value);
    place(value);
  }
  program.output(name, value);
}

class ModuleBuilder {
 public:
  ModuleBuilder(const LMObjective& objective, const StepShape& shape, DType compute)
      : objective_(objective), shape_(shape), compute_(compute) {
    DEW_CHECK(compute == DType::f32 || compute == DType::bf16,
              "compute type " + std::string(name(compute)));
  }

  // `prefix`NAME for each parameter.
  void add_state(const std::string& prefix) {
    for (const ParamSpec& param : objective_.params())
      module_.add_register(prefix + param.name, param.type);
  }

  void add_copies() {
    for (const ParamSpec& param : objective_.params()) {
      if (is_cast(param, compute_))
        module_.add_register(registers::cast(param.name), {compute_, param.type.shape});
    }
  }

  void add_batch() {
    for (const Named& in : sliced_inputs(shape_)) {
      Dims whole = in.type.shape;
      whole.insert(whole.begin(), shape_.micro_steps);
      module_.add_register(in.name, {in.type.dtype, whole});
      sliced_.push_back(in.name);
    }
    for (const Named& in : whole_inputs(shape_)) module_.add_register(in.name, in.type);
  }

  void add_scalars(std::initializer_list<const char*> names) {
    for (const char* name : names) module_.add_register(name, kScalar);
  }

  void add_register(const std::string& name, Type type) {
    module_.add_register(name, std::move(type));
  }

  int add_program(Program program) {
    module_.programs.push_back(std::move(program));
    return static_cast<int>(module_.programs.size()) - 1;
  }

  // {cast, first, next x (A' - 1)}; `make` writes the first (false) or the next ones (true).
  template <class Make>
  CallList micro_steps(std::string name, Make make) {
    CallList list{.name = std::move(name), .calls = {}};
    if (compute_ != DType::f32) {
      if (cast_ < 0) cast_ = add_program(cast_program(objective_.params(), compute_));
      add_call(module_, list, cast_);
    }
    add_call(module_, list, add_program(make(objective_, shape_, compute_, false)), sliced_, 0);
    if (shape_.micro_steps == 1) return list;
    const int next = add_program(make(objective_, shape_, compute_, true));
    for (std::int64_t micro = 1; micro < shape_.micro_steps; ++micro)
      add_call(module_, list, next, sliced_, micro);
    return list;
  }

  void finish_train(const Optimizer& optimizer) {
    CallList train = micro_steps("train", micro_program);
    add_call(module_, train, add_program(update_program(optimizer, objective_.params())));
    module_.lists.push_back(std::move(train));
  }

  // The list "train" without its update.
  void finish_gradient() {
    CallList gradient = module_.lists[static_cast<std::size_t>(module_.list_index("train"))];
    gradient.name = "gradient";
    gradient.calls.pop_back();
    module_.lists.push_back(std::move(gradient));
  }

  void finish_logits() {
    DEW_CHECK(shape_.micro_steps == 1, "logits of several micro steps");
    module_.add_register(
        registers::kLogits,
        {DType::f32, {shape_.rows, shape_.columns, objective_.model().config().vocab_size}});
    const auto program = [](const LMObjective& objective, const StepShape& shape, DType compute,
                            bool) { return logits_program(objective, shape, compute); };
    module_.lists.push_back(micro_steps("logits", program));
  }

  Module finish_eval() {
    module_.lists.push_back(micro_steps("eval", eval_program));
    return std::move(module_);
  }

 private:
  const LMObjective& objective_;
  const StepShape shape_;
  const DType compute_;
  Module module_;
  std::vector<std::string> sliced_;
  int cast_ = -1;
};

}  // namespace

Program cast_program(std::span<const ParamSpec> params, DType compute) {
  Program program("cast");
  for (const ParamSpec& param : params) {
    if (!is_cast(param, compute)) continue;
    const Value whole = program.input(registers::parameter(param.name), param.type, true);
    const Value copy = convert(whole, compute);
    program.set_like(copy, whole.id);
    program.output(registers::cast(param.name), copy);
  }
  return program;
}

Program micro_program(const LMObjective& objective, const StepShape& shape, DType compute,
                      bool accumulate) {
  Program program(accumulate ? "micro" : "micro_first");
  const ParamValues params = param_inputs(program, objective.params(), compute);
  const BatchValues batch = batch_inputs(program, shape);
  const Value inv_weight = program.input(registers::kInvWeight, kScalar);
  program.input(registers::kInvTokens, kScalar);  // for losses that count tokens and not weights
  const LMLoss loss = objective.train_loss(params, batch, inv_weight, compute);
  std::vector<Value> wrt;
  for (const ParamSpec& param : objective.params()) wrt.push_back(params.at(param.name));
  const Remat remat = parse_remat(objective.model().config().remat);
  const std::vector<Value> grads = gradients(program, loss.loss, wrt, remat);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    output_sum(registers::gradient(objective.params()[i].name), grads[i], accumulate, true,
               wrt[i].id);
  }
  output_sum(registers::kLoss, loss.loss, accumulate, false);
  output_sum(registers::kNll, loss.nll, accumulate, false);
  output_sum(registers::kCorrect, loss.correct, accumulate, false);
  return program;
}

Program eval_program(const LMObjective& objective, const StepShape& shape, DType compute,
                     bool accumulate) {
  Program program(accumulate ? "eval" : "eval_first");
  const ParamValues params = param_inputs(program, objective.params(), compute);
  const LMLoss loss = objective.eval_loss(params, batch_inputs(program, shape), compute);
  output_sum(registers::kEvalNll, loss.nll, accumulate, false);
  output_sum(registers::kEvalCorrect, loss.correct, accumulate, false);
  return program;
}

Program logits_program(const LMObjective& objective, const StepShape& shape, DType compute) {
  Program program("logits");
  const ParamValues params = param_inputs(program, objective.params(), compute);
  program.output(registers::kLogits,
                 objective.logits(params, batch_inputs(program, shape), compute));
  return program;
}

namespace {

// All but the list "eval".
ModuleBuilder training_builder(const LMObjective& objective, const Optimizer& optimizer,
                               const StepShape& shape, DType compute) {
  namespace names = registers;
  ModuleBuilder builder(objective, shape, compute);
  builder.add_state(names::kParameter);
  for (const StateSlot& slot : state_slots(optimizer)) builder.add_state(slot.prefix);
  builder.add_state(names::kGradient);
  builder.add_copies();
  builder.add_batch();
  builder.add_scalars(
      {names::kInvWeight, names::kInvTokens, names::kLr, names::kC1, names::kC2, names::kClipNorm});
  builder.add_scalars({names::kLoss, names::kNll, names::kCorrect, names::kGradNorm,
                       names::kEvalNll, names::kEvalCorrect});
  builder.add_register(names::kCommit, {DType::pred, {}});
  builder.finish_train(optimizer);
  return builder;
}

}  // namespace

Module training_module(const LMObjective& objective, const Optimizer& optimizer,
                       const StepShape& shape, DType compute) {
  return training_builder(objective, optimizer, shape, compute).finish_eval();
}

Module probing_module(const LMObjective& objective, const Optimizer& optimizer,
                      const StepShape& shape, DType compute) {
  ModuleBuilder builder = training_builder(objective, optimizer, shape, compute);
  builder.finish_gradient();
  builder.finish_logits();
  return builder.finish_eval();
}

Module evaluation_module(const LMObjective& objective, const StepShape& shape, DType compute) {
  ModuleBuilder builder(objective, shape, compute);
  builder.add_state(registers::kParameter);
  builder.add_copies();
  builder.add_batch();
  builder.add_scalars({registers::kEvalNll, registers::kEvalCorrect});
  return builder.finish_eval();
}

std::vector<StateArray> state_arrays(std::span<const ParamSpec> params,
                                     const Optimizer& optimizer) {
  std::vector<StateArray> arrays;
  const auto add_group = [&](const std::string& prefix, bool starts_as_parameter) {
    for (std::size_t i = 0; i < params.size(); ++i)
      arrays.push_back({prefix + params[i].name, i, starts_as_parameter});
  };
  add_group(registers::kParameter, true);
  for (const StateSlot& slot : state_slots(optimizer))
    add_group(slot.prefix, slot.starts_as_parameter);
  return arrays;
}

}  // namespace dew
