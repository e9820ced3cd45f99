#include "dew/train/stepper.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/compile.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

// Elements that one thread fills at a time.
constexpr std::int64_t kInitPart = 1 << 18;

struct InitTask {
  const ParamSpec* param;
  std::int64_t slot, first;
  std::span<float> out;
};

void run_tasks(const std::vector<InitTask>& tasks, RandomKey key) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t t = next.fetch_add(1); t < tasks.size(); t = next.fetch_add(1)) {
      init_part(*tasks[t].param, key, tasks[t].slot, tasks[t].first, tasks[t].out);
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(tasks.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (std::size_t t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
}

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void add_tasks(const ParamSpec& param, std::span<float> values, std::vector<InitTask>& tasks) {
  const std::int64_t per_layer = param.layer_elements();
  for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
    for (std::int64_t first = 0; first < per_layer; first += kInitPart) {
      const auto count = static_cast<std::size_t>(std::min(kInitPart, per_layer - first));
      tasks.push_back({&param, slot, first,
                       values.subspan(static_cast<std::size_t>(slot * per_layer + first), count)});
    }
  }
}

// A checkpoint's name for a layer of a register: the prefix up to the parameter's name, then its
// outside name.
std::string outside_name(const StateArray& array, const ParamSpec& param, std::int64_t slot) {
  return array.name.substr(0, array.name.size() - param.name.size()) + param.layer_name(slot);
}

template <class T>
void copy_into(std::span<std::byte> to, const std::vector<T>& from, const char* what) {
  DEW_CHECK(to.size() == from.size() * sizeof(T),
            format("batch array {} has {} elements", what, from.size()));
  std::memcpy(to.data(), from.data(), to.size());
}

}  // namespace

StepShape step_shape(const DispatchPlan& plan) {
  return {plan.steps(), plan.micro_rows(), plan.padded_seq_len()};
}

Stepper::Stepper(const LMObjective& objective, const Optimizer& optimizer, const StepShape& shape,
                 DType compute, Backend& backend, const std::string& dump)
    : Stepper(objective, shape, training_module(objective, optimizer, shape, compute),
              state_arrays(objective.params(), optimizer), backend, dump) {
  optimizer_ = optimizer;
  trains_ = true;
}

Stepper::Stepper(const LMObjective& objective, const StepShape& shape, DType compute,
                 Backend& backend)
    : Stepper(objective, shape, evaluation_module(objective, shape, compute), {}, backend, {}) {
  for (std::size_t p = 0; p < objective_.params().size(); ++p) {
    state_.push_back({registers::parameter(objective_.params()[p].name), p, true});
  }
}

Stepper::Stepper(const LMObjective& objective, const StepShape& shape, Module module,
                 std::vector<StateArray> state, Backend& backend, const std::string& dump)
    : objective_(objective),
      shape_(shape),
      state_(std::move(state)),
      executable_(compile(std::move(module), backend, {.dump = dump})) {
  for (std::size_t r = 0; r < executable_->module().registers.size(); ++r) {
    registers_.push_back(executable_->shards(static_cast<int>(r)).front().bytes);
  }
}

std::span<std::byte> Stepper::bytes(std::string_view reg) const {
  return registers_[static_cast<std::size_t>(executable_->module().register_index(reg))];
}

template <class T>
void Stepper::put(std::string_view reg, T value) {
  std::memcpy(bytes(reg).data(), &value, sizeof(T));
}

double Stepper::get(std::string_view reg) const {
  float value = 0;
  std::memcpy(&value, bytes(reg).data(), sizeof(value));
  return static_cast<double>(value);
}

void Stepper::initialize() {
  std::vector<InitTask> tasks;
  for (const StateArray& array : state_) {
    const std::span<float> values = floats(bytes(array.name));
    if (array.starts_as_parameter) {
      add_tasks(objective_.params()[array.param], values, tasks);
    } else {
      std::ranges::fill(values, 0.0f);
    }
  }
  run_tasks(tasks, key_);
}

void Stepper::upload(const StepBatch& batch) {
  copy_into(bytes(registers::kIds), batch.ids, registers::kIds);
  copy_into(bytes(registers::kLabels), batch.labels, registers::kLabels);
  copy_into(bytes(registers::kWeights), batch.weights, registers::kWeights);
  copy_into(bytes(registers::kPositions), batch.positions, registers::kPositions);
  copy_into(bytes(registers::kSegments), batch.segments, registers::kSegments);
  copy_into(bytes(registers::kRowIds), batch.row_ids, registers::kRowIds);
  copy_into(bytes(registers::kColumns), batch.columns, registers::kColumns);
}

StepResult Stepper::step(const StepBatch& batch, const StepScalars& scalars) {
  upload(batch);
  const BiasCorrection correction = bias_correction(optimizer_, scalars.update);
  put(registers::kInvWeight,
      static_cast<float>(batch.weight_sum > 0 ? 1.0 / batch.weight_sum : 0.0));
  put(registers::kInvTokens,
      static_cast<float>(batch.real_tokens > 0 ? 1.0 / static_cast<double>(batch.real_tokens)
                                               : 0.0));
  put(registers::kKey, key_);
  put(registers::kStep, static_cast<std::int32_t>(scalars.step));
  put(registers::kLr, static_cast<float>(scalars.lr));
  put(registers::kClipNorm, static_cast<float>(optimizer_.clip_norm));
  if (optimizer_.name == "adamw") {
    put(registers::kC1, static_cast<float>(correction.c1));
    put(registers::kC2, static_cast<float>(correction.c2));
  }
  executable_->run(executable_->module().list_index("train"));
  return {.loss = get(registers::kLoss),
          .nll = get(registers::kNll),
          .accuracy = get(registers::kCorrect),
          .grad_norm = get(registers::kGradNorm),
          .committed = bytes(registers::kCommit)[0] != std::byte{0}};
}

std::optional<EvalResult> Stepper::evaluate(ValidationPass& pass,
                                            const std::function<bool()>& should_stop) {
  pass.restart();
  double nll = 0, correct = 0, weight = 0;
  put(registers::kKey, key_);
  put(registers::kStep, std::int32_t{0});
  const int list = executable_->module().list_index("eval");
  while (const StepBatch* batch = pass.next()) {
    if (should_stop && should_stop()) return std::nullopt;
    upload(*batch);
    executable_->run(list);
    nll += get(registers::kEvalNll);
    correct += get(registers::kEvalCorrect);
    weight += batch->weight_sum;
  }
  const double loss = nll / weight;
  return EvalResult{
      .loss = loss, .perplexity = std::exp(loss), .accuracy = correct / weight, .tokens = weight};
}

std::vector<Stepper::Array> Stepper::arrays() {
  std::vector<Array> out;
  for (const StateArray& array : state_) {
    const ParamSpec& param = objective_.params()[array.param];
    const std::span<std::byte> all = bytes(array.name);
    const std::size_t per_layer = all.size() / static_cast<std::size_t>(param.layers());
    AxisNames axes = param.axes;
    if (!param.stack.empty()) axes.erase(axes.begin());
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
      out.push_back({outside_name(array, param, slot), param.layer_shape(), axes,
                     all.subspan(static_cast<std::size_t>(slot) * per_layer, per_layer)});
    }
  }
  return out;
}

std::vector<WholeTensor> Stepper::state() {
  std::vector<WholeTensor> out;
  for (Array& a : arrays()) {
    out.push_back({{.name = std::move(a.name),
                    .dtype = DType::f32,
                    .shape = std::move(a.shape),
                    .axes = std::move(a.axes),
                    .pieces = {}},
                   a.bytes});
  }
  return out;
}

void Stepper::restore(const CheckpointReader& reader) {
  const std::vector<Array> all = arrays();
  std::vector<std::string> problems;
  std::set<std::string_view> known;
  for (const Array& a : all) {
    known.insert(a.name);
    const TensorRecord* t = reader.find(a.name);
    if (t == nullptr) {
      problems.push_back(format("'{}' is missing", a.name));
    } else if (t->dtype != DType::f32 || t->shape != a.shape) {
      problems.push_back(format("'{}' is {}[{}], but f32[{}] is needed", a.name, name(t->dtype),
                                join(t->shape), join(a.shape)));
    }
  }
  for (const TensorRecord& t : reader.tensors()) {
    if (trains_ && !known.contains(t.name)) problems.push_back(format("'{}' has no place", t.name));
  }
  if (!problems.empty()) {
    fail(ErrorCode::checkpoint, format("'{}' does not hold this state: {}", reader.path().string(),
                                       fmt::join(problems, "; ")));
  }
  for (const Array& a : all) reader.read(*reader.find(a.name), a.bytes);
}

}  // namespace dew
