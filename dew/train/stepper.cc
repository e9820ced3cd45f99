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
#include "dew/sharding/describe.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

// Elements that one thread fills at a time.
constexpr std::int64_t kInitPart = 1 << 18;

// A run of elements of one layer that lie side by side in memory.
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

// A number that is none is told as one, whatever its sign.
double unsigned_nan(double x) { return std::isnan(x) ? std::abs(x) : x; }

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// Calls visit(element of the whole array, element of the part, count) for the runs of a box, in
// order.
template <class Visit>
void for_each_run(const Dims& whole, const Dims& start, const Dims& extent, Visit visit) {
  std::size_t walked = extent.size();
  std::int64_t run = 1;
  while (walked > 0) {
    run *= extent[--walked];
    if (extent[walked] != whole[walked]) break;
  }
  const Dims strides = row_major_strides(whole);
  std::int64_t first = 0, at = 0;
  for (std::size_t d = 0; d < start.size(); ++d) first += start[d] * strides[d];
  for_each_index(std::span(extent).first(walked), [&](const Dims& index) {
    std::int64_t from = first;
    for (std::size_t d = 0; d < index.size(); ++d) from += index[d] * strides[d];
    if (run > 0) visit(from, at, run);
    at += run;
  });
}

void add_tasks(const ParamSpec& param, const Shard& shard, std::vector<InitTask>& tasks) {
  const std::span<float> values = floats(shard.bytes);
  const std::int64_t per_layer = param.layer_elements();
  for_each_run(param.type.shape, shard.start, shard.extent,
               [&](std::int64_t from, std::int64_t at, std::int64_t count) {
                 while (count > 0) {
                   const std::int64_t slot = from / per_layer, first = from % per_layer;
                   const std::int64_t n = std::min({kInitPart, per_layer - first, count});
                   tasks.push_back(
                       {&param, slot, first,
                        values.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n))});
                   from += n, at += n, count -= n;
                 }
               });
}

}  // namespace

StepShape step_shape(const DispatchPlan& plan) {
  return {plan.steps(), plan.micro_rows(), plan.padded_seq_len()};
}

Stepper::Stepper(const LMObjective& objective, const Optimizer& optimizer, const StepShape& shape,
                 DType compute, Backend& backend, const StepperOptions& options)
    : Stepper(objective, shape,
              options.probe ? probing_module(objective, optimizer, shape, compute)
                            : training_module(objective, optimizer, shape, compute),
              state_arrays(objective.params(), optimizer), backend, options) {
  optimizer_ = optimizer;
  trains_ = true;
}

Stepper::Stepper(const LMObjective& objective, const StepShape& shape, DType compute,
                 Backend& backend, const StepperOptions& options)
    : Stepper(objective, shape, evaluation_module(objective, shape, compute), {}, backend,
              options) {
  for (std::size_t p = 0; p < objective_.params().size(); ++p) {
    state_.push_back({registers::parameter(objective_.params()[p].name), p, true});
  }
}

Stepper::Stepper(const LMObjective& objective, const StepShape& shape, Module module,
                 std::vector<StateArray> state, Backend& backend, const StepperOptions& options)
    : objective_(objective),
      shape_(shape),
      state_(std::move(state)),
      arrangement_(options.arrangement) {
  std::vector<DroppedPin> whole;
  Placement placement = place_module(module, objective_.params(), arrangement_, &whole);
  executable_ = compile(std::move(module), backend,
                        {.dump = options.dump,
                         .placement = std::move(placement),
                         .check_replicas = options.check_replicas,
                         .remark = options.remark});
  for (const DroppedPin& pin : whole) {
    if (options.remark) options.remark(to_string(arrangement_.mesh, pin));
  }
  for (std::size_t r = 0; r < executable_->module().registers.size(); ++r)
    registers_.push_back(executable_->shards(static_cast<int>(r)));
  for (const char* name :
       {registers::kIds, registers::kLabels, registers::kWeights, registers::kPositions,
        registers::kSegments, registers::kRowIds, registers::kColumns}) {
    uploads_.emplace_back(index(name), runs_of(name));
  }
}

std::size_t Stepper::index(std::string_view reg) const {
  return static_cast<std::size_t>(executable_->module().register_index(reg));
}

std::span<std::byte> Stepper::bytes(std::string_view reg) const {
  return registers_[index(reg)].front().bytes;
}

template <class T>
void Stepper::put(std::string_view reg, T value) {
  std::memcpy(bytes(reg).data(), &value, sizeof(T));
}

double Stepper::get(std::string_view reg) const {
  float value = 0;
  std::memcpy(&value, bytes(reg).data(), sizeof(value));
  return unsigned_nan(static_cast<double>(value));
}

void Stepper::initialize() {
  std::vector<InitTask> tasks;
  for (const StateArray& array : state_) {
    for (const Shard& shard : registers_[index(array.name)]) {
      if (array.starts_as_parameter) {
        add_tasks(objective_.params()[array.param], shard, tasks);
      } else {
        std::ranges::fill(floats(shard.bytes), 0.0f);
      }
    }
  }
  run_tasks(tasks, key_);
}

void Stepper::start_from_parameters() {
  for (const StateArray& array : state_) {
    const std::string parameter = registers::parameter(objective_.params()[array.param].name);
    if (array.name == parameter) continue;
    const std::vector<Shard>&to = registers_[index(array.name)],
          &from = registers_[index(parameter)];
    for (std::size_t k = 0; k < to.size(); ++k) {
      if (array.starts_as_parameter) {
        std::ranges::copy(from[k].bytes, to[k].bytes.begin());
      } else {
        std::ranges::fill(to[k].bytes, std::byte{0});
      }
    }
  }
}

namespace {

// What the parts have of one dimension of an array: blocks, all of one size. The host's array has
// those of this process alone, one after another.
struct Blocks {
  Dims starts;  // ascending
  std::int64_t extent = 0;

  std::int64_t place(std::int64_t start) const {
    return (std::ranges::lower_bound(starts, start) - starts.begin()) * extent;
  }
};

std::vector<Blocks> blocks_of(const std::vector<Shard>& shards) {
  std::vector<Blocks> dims(shards.empty() ? 0 : shards.front().start.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    std::set<std::int64_t> starts;
    for (const Shard& shard : shards) starts.insert(shard.start[d]);
    dims[d] = {Dims(starts.begin(), starts.end()), shards.front().extent[d]};
  }
  return dims;
}

}  // namespace

std::vector<Stepper::Run> Stepper::runs_of(std::string_view reg) const {
  const std::size_t r = index(reg);
  const auto size =
      static_cast<std::size_t>(byte_size(executable_->module().registers[r].type.dtype));
  const std::vector<Blocks> blocks = blocks_of(registers_[r]);
  Dims whole;
  for (const Blocks& b : blocks) whole.push_back(std::ssize(b.starts) * b.extent);
  std::vector<Run> runs;
  for (const Shard& shard : registers_[r]) {
    Dims start;
    for (std::size_t d = 0; d < blocks.size(); ++d)
      start.push_back(blocks[d].place(shard.start[d]));
    for_each_run(whole, start, shard.extent,
                 [&](std::int64_t from, std::int64_t at, std::int64_t count) {
                   runs.push_back({static_cast<std::size_t>(from) * size,
                                   shard.bytes.subspan(static_cast<std::size_t>(at) * size,
                                                       static_cast<std::size_t>(count) * size)});
                 });
  }
  return runs;
}

template <class T>
void Stepper::upload(std::string_view reg, const std::vector<T>& values) {
  const std::size_t r = index(reg);
  const auto found = std::ranges::find(uploads_, r, [](const auto& u) { return u.first; });
  std::size_t copied = 0;
  for (const Run& run : found->second) {
    DEW_CHECK(run.from + run.to.size() <= values.size() * sizeof(T),
              format("batch array {} has {} elements", reg, values.size()));
    std::memcpy(run.to.data(), reinterpret_cast<const std::byte*>(values.data()) + run.from,
                run.to.size());
    copied += run.to.size();
  }
  DEW_CHECK(copied == values.size() * sizeof(T),
            format("batch array {} has {} elements", reg, values.size()));
}

void Stepper::upload(const StepBatch& batch) {
  upload(registers::kIds, batch.ids);
  upload(registers::kLabels, batch.labels);
  upload(registers::kWeights, batch.weights);
  upload(registers::kPositions, batch.positions);
  upload(registers::kSegments, batch.segments);
  upload(registers::kRowIds, batch.row_ids);
  upload(registers::kColumns, batch.columns);
}

void Stepper::put_scalars(const StepBatch& batch, std::int64_t step) {
  put(registers::kInvWeight,
      static_cast<float>(batch.weight_sum > 0 ? 1.0 / batch.weight_sum : 0.0));
  put(registers::kInvTokens,
      static_cast<float>(batch.real_tokens > 0 ? 1.0 / static_cast<double>(batch.real_tokens)
                                               : 0.0));
  put(registers::kKey, key_);
  put(registers::kStep, static_cast<std::int32_t>(step));
}

StepResult Stepper::step(const StepBatch& batch, const StepScalars& scalars) {
  upload(batch);
  put_scalars(batch, scalars.step);
  const BiasCorrection correction = bias_correction(optimizer_, scalars.update);
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

void Stepper::start_trace(int steps) {
  executable_->start_trace(executable_->module().list_index("train"), steps);
}

StepResult Stepper::gradient(const StepBatch& batch, std::int64_t step) {
  upload(batch);
  put_scalars(batch, step);
  executable_->run(executable_->module().list_index("gradient"));
  return {.loss = get(registers::kLoss),
          .nll = get(registers::kNll),
          .accuracy = get(registers::kCorrect)};
}

std::vector<std::byte> Stepper::logits(const StepBatch& batch) {
  upload(batch);
  put(registers::kKey, key_);
  put(registers::kStep, std::int32_t{0});
  executable_->run(executable_->module().list_index("logits"));
  std::vector<std::byte> out;
  for (const Shard& shard : registers_[index(registers::kLogits)])
    out.resize(out.size() + shard.bytes.size());
  for (const Run& run : runs_of(registers::kLogits))
    std::ranges::copy(run.to, out.begin() + static_cast<std::ptrdiff_t>(run.from));
  return out;
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
  const double loss = unsigned_nan(nll / weight);
  return EvalResult{
      .loss = loss, .perplexity = std::exp(loss), .accuracy = correct / weight, .tokens = weight};
}

std::string Stepper::Array::sharding() const { return to_user_string(mesh, spec); }

std::string Stepper::Array::describe(std::int64_t devices) const {
  return dew::describe(mesh, spec, shape, devices);
}

std::string Stepper::Array::draw(bool color) const { return draw_blocks(mesh, spec, shape, color); }

std::vector<float> Stepper::Array::values() const {
  std::vector<float> out(static_cast<std::size_t>(element_count(shape)));
  std::memcpy(out.data(), whole().data(), out.size() * sizeof(float));
  return out;
}

std::vector<std::byte> Stepper::Array::whole() const {
  std::int64_t here = 0;
  for (const Part& part : parts) here += part.box.elements();
  if (here != element_count(shape)) {
    fail(ErrorCode::usage,
         format("of '{}' this process holds {} of {} elements", name, here, element_count(shape)),
         "several processes hold it; a checkpoint has all of it");
  }
  std::vector<std::byte> out(static_cast<std::size_t>(element_count(shape)) * sizeof(float));
  for (const Part& part : parts)
    copy_part(part.box, sizeof(float), part.box, part.bytes, dew::whole(shape), out);
  return out;
}

void Stepper::Array::assign(std::span<const std::byte> bytes) const {
  for (const Part& part : parts)
    copy_part(part.box, sizeof(float), dew::whole(shape), bytes, part.box, part.bytes);
}

// A register a layer at a time, each named by the prefix and the layer's outside name.
void Stepper::add_layers(std::vector<Array>& out, const std::string& reg, const std::string& prefix,
                         const ParamSpec& param) const {
  const bool stacked = !param.stack.empty();
  Spec spec = state_spec(arrangement_, param);
  AxisNames axes = param.axes;
  if (stacked) axes.erase(axes.begin());
  if (stacked) spec.dims.erase(spec.dims.begin());
  const std::size_t first = out.size();
  for (std::int64_t slot = 0; slot < param.layers(); ++slot)
    out.push_back(
        {prefix + param.layer_name(slot), param.layer_shape(), axes, spec, arrangement_.mesh, {}});
  for (const Shard& shard : registers_[index(reg)]) {
    if (!stacked) {
      out[first].parts.push_back(
          {{shard.start, shard.extent}, shard.bytes, shard.device, shard.copy, shard.copies});
      continue;
    }
    // One layer, or all of them one after another.
    const auto layers = static_cast<std::size_t>(shard.extent[0]);
    const std::size_t per_layer = shard.bytes.size() / std::max<std::size_t>(layers, 1);
    const Box box{{shard.start.begin() + 1, shard.start.end()},
                  {shard.extent.begin() + 1, shard.extent.end()}};
    for (std::size_t k = 0; k < layers; ++k) {
      out[first + static_cast<std::size_t>(shard.start[0]) + k].parts.push_back(
          {box, shard.bytes.subspan(k * per_layer, per_layer), shard.device, shard.copy,
           shard.copies});
    }
  }
}

std::vector<Stepper::Array> Stepper::arrays() {
  std::vector<Array> out;
  for (const StateArray& array : state_) {
    const ParamSpec& param = objective_.params()[array.param];
    add_layers(out, array.name, array.name.substr(0, array.name.size() - param.name.size()), param);
  }
  return out;
}

std::vector<Stepper::Array> Stepper::group(const char* prefix) const {
  std::vector<Array> out;
  for (const ParamSpec& param : objective_.params())
    add_layers(out, prefix + param.name, "", param);
  return out;
}

std::vector<Stepper::Array> Stepper::gradients() { return group(registers::kGradient); }
std::vector<Stepper::Array> Stepper::parameters() { return group(registers::kParameter); }

std::vector<StateTensor> Stepper::state() {
  std::vector<StateTensor> out;
  std::int64_t number = 0;
  for (Array& a : arrays()) {
    ++number;
    StateTensor tensor{{.name = std::move(a.name),
                        .dtype = DType::f32,
                        .shape = std::move(a.shape),
                        .axes = std::move(a.axes),
                        .pieces = {}},
                       {}};
    for (Part& part : a.parts) {
      // Those that have a part save it in turn, an array each.
      if (number % part.copies == part.copy)
        tensor.parts.push_back({std::move(part.box), part.bytes});
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

namespace {

// Why the checkpoint cannot fill these arrays, or hold nothing else if it must.
std::vector<std::string> mismatches(const CheckpointReader& reader,
                                    std::span<const Stepper::Array> arrays, bool nothing_else) {
  std::vector<std::string> problems;
  std::set<std::string_view> known;
  for (const Stepper::Array& a : arrays) {
    known.insert(a.name);
    const TensorRecord* t = reader.find(a.name);
    if (t == nullptr) {
      problems.push_back(format("'{}' is missing", a.name));
    } else if (t->dtype != DType::f32 || t->shape != a.shape) {
      problems.push_back(format("'{}' is {}[{}], but f32[{}] is needed", a.name, name(t->dtype),
                                join(t->shape), join(a.shape)));
    }
  }
  if (!nothing_else) return problems;
  for (const TensorRecord& t : reader.tensors()) {
    if (!known.contains(t.name)) problems.push_back(format("'{}' has no place", t.name));
  }
  return problems;
}

void read_arrays(const CheckpointReader& reader, std::span<const Stepper::Array> arrays,
                 bool nothing_else) {
  const std::vector<std::string> problems = mismatches(reader, arrays, nothing_else);
  if (!problems.empty()) {
    fail(ErrorCode::checkpoint, format("'{}' does not hold this state: {}", reader.path().string(),
                                       fmt::join(problems, "; ")));
  }
  for (const Stepper::Array& a : arrays) {
    const TensorRecord& record = *reader.find(a.name);
    for (const Stepper::Part& part : a.parts) reader.read(record, part.box, part.bytes);
  }
}

}  // namespace

void Stepper::restore_parameters(const CheckpointReader& reader) {
  std::vector<Array> all = parameters();
  for (Array& a : all) a.name = registers::parameter(a.name);
  read_arrays(reader, all, false);
}

void Stepper::restore(const CheckpointReader& reader) { read_arrays(reader, arrays(), trains_); }

}  // namespace dew
