#include "dew/runtime/cpu/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/machine.h"
#include "dew/base/text.h"
#include "dew/ir/tensor.h"
#include "dew/plan/cost.h"

namespace dew::cpu {
namespace {

constexpr std::size_t kAlign = 64;

std::size_t aligned(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
}

std::int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

// What the walk of one worker carries along.
struct CpuExecutable::Worker {
  int number = 0;
  bool alone = false;  // worker 0 has run steps since the last barrier
  KernelArgs args;
  std::byte** operands = nullptr;
  std::vector<TraceSpan>* spans = nullptr;  // null: nothing is traced
};

// Records how long it lives, where that is wanted.
class CpuExecutable::Span {
 public:
  Span(Worker& worker, const BoundStep& step, std::int64_t iteration, int phase)
      : spans_(worker.spans) {
    if (spans_ != nullptr)
      span_ = {.step = step.number, .phase = phase, .iteration = iteration, .begin_ns = now_ns()};
  }
  ~Span() {
    if (spans_ == nullptr) return;
    span_.end_ns = now_ns();
    spans_->push_back(span_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  std::vector<TraceSpan>* spans_;
  TraceSpan span_;
};

CpuExecutable::CpuExecutable(Module module, Placed placed, std::shared_ptr<Pool> pool,
                             comm::Job* job)
    : module_(std::move(module)), placed_(std::move(placed)), pool_(std::move(pool)) {
  part_.place = placed_.place;
  if (!part_.place.empty()) {
    DEW_CHECK(job != nullptr, "a part of a mesh without other processes");
    exchanges_ = std::make_unique<Exchanges>(*job, part_);
  }
  placed_.registers.resize(module_.registers.size());
  placed_.stacked.resize(module_.registers.size(), false);
  for (std::size_t r = 0; r < module_.registers.size(); ++r)
    placed_.registers[r].dims.resize(module_.registers[r].type.shape.size());
  for (const MeshAtom& a : placed_.mesh.atoms) part_.atom_sizes.push_back(a.size);
  make_plans();
  expect_room();
  make_kernels();
  lay_out_memory();
  for (Compiled& c : compiled_) make_constants(c);
  for (const CallList& list : module_.lists) {
    lists_.emplace_back();
    for (const Call& call : list.calls) lists_.back().push_back(bind(call));
    bodies_.push_back(
        [this, number = static_cast<int>(lists_.size()) - 1](int worker) { walk(number, worker); });
  }
  operand_space_.assign(static_cast<std::size_t>(pool_->workers()),
                        std::vector<std::byte*>(max_operands_));
}

void CpuExecutable::make_plans() {
  for (std::size_t p = 0; p < module_.programs.size(); ++p) {
    compiled_.emplace_back();
    compiled_.back().plan =
        make_plan(module_.programs[p], replaced_inputs(module_, static_cast<int>(p)), part_,
                  placed_.check_replicas ? Replicas::checked : Replicas::once);
  }
}

// In floating point: sizes may be as absurd as a config allows.
void CpuExecutable::expect_room() const {
  double registers = 0, arena = 0;
  for (std::size_t r = 0; r < module_.registers.size(); ++r)
    registers += static_cast<double>(memory_type(register_info(r), part_.atom_sizes).bytes());
  for (const Compiled& c : compiled_)
    arena = std::max(arena, static_cast<double>(c.plan.arena_bytes));
  const double there = memory_bytes();
  if (registers + arena > there) throw TooLarge(registers, arena, there);
}

void CpuExecutable::make_kernels() {
  for (Compiled& c : compiled_) {
    for (const Step& step : c.plan.steps) {
      const bool exchange = step.exchange >= 0;
      c.kernels.push_back(exchange ? nullptr : make_kernel(step));
      c.exchanges.push_back(exchange ? exchanges_->add(step, c.plan.name) : -1);
      max_operands_ = std::max(max_operands_, step.inputs.size() + step.outputs.size());
    }
  }
}

void CpuExecutable::lay_out_memory() {
  std::size_t offset = 0, constants = 0, arena = 0, shared = 0;
  for (std::size_t r = 0; r < module_.registers.size(); ++r) {
    register_offset_.push_back(offset);
    offset += aligned(memory_type(register_info(r), part_.atom_sizes).bytes());
  }
  for (const Compiled& c : compiled_) {
    arena = std::max(arena, aligned(c.plan.arena_bytes));
    for (const Buffer& b : c.plan.buffers)
      constants += b.kind == BufferKind::constant || b.kind == BufferKind::count
                       ? aligned(b.type.bytes())
                       : 0;
    for (const auto& k : c.kernels) {
      if (k == nullptr) continue;
      shared = std::max(shared, (k->shared_scratch() + kAlign - 1) / kAlign * kAlign);
      worker_bytes_ = std::max(worker_bytes_, (k->worker_scratch() + kAlign - 1) / kAlign * kAlign);
    }
  }
  constants_offset_ = offset;
  arena_offset_ = constants_offset_ + constants;
  shared_offset_ = arena_offset_ + arena;
  worker_offset_ = shared_offset_ + shared;
  memory_ = Memory(worker_offset_ + worker_bytes_ * static_cast<std::size_t>(pool_->workers()));
}

void CpuExecutable::make_constants(Compiled& c) {
  c.constants.assign(c.plan.buffers.size(), nullptr);
  for (std::size_t b = 0; b < c.plan.buffers.size(); ++b) {
    const Buffer& buffer = c.plan.buffers[b];
    if (buffer.kind != BufferKind::constant && buffer.kind != BufferKind::count) continue;
    c.constants[b] = memory_.data() + constants_offset_;
    constants_offset_ += aligned(buffer.type.bytes());
    if (buffer.kind == BufferKind::count) continue;  // memory begins as zeros
    const std::vector<Array> value = buffer.op->reference(buffer.attrs, {}, {&buffer.type, 1});
    store(value.front(), buffer.type.dtype, c.constants[b]);
  }
}

std::byte* CpuExecutable::address(const Compiled& c, const Call& call, const View& view) const {
  const auto b = static_cast<std::size_t>(view.buffer);
  const Buffer& buffer = c.plan.buffers[b];
  const std::int64_t inside = view.offset * byte_size(view.type.dtype);
  const auto at = [&](int reg, bool sliced) {
    std::byte* start = memory_.data() + register_offset_[static_cast<std::size_t>(reg)];
    return start + inside + (sliced ? call.micro * buffer.type.bytes() : 0);
  };
  const auto index = static_cast<std::size_t>(buffer.index);
  switch (buffer.kind) {
    case BufferKind::arena:
      return memory_.data() + arena_offset_ + buffer.offset + inside;
    case BufferKind::input:
      return at(call.inputs[index], call.sliced[index]);
    case BufferKind::output:
      return at(call.outputs[index], false);
    case BufferKind::constant:
    case BufferKind::count:
      return c.constants[b] + inside;
  }
  return nullptr;
}

BoundCall CpuExecutable::bind(const Call& call) const {
  const Compiled& c = compiled_[static_cast<std::size_t>(call.program)];
  BoundCall bound{.plan = &c.plan, .steps = {}};
  int number = 0;
  for (int p = 0; p < call.program; ++p)
    number += static_cast<int>(compiled_[static_cast<std::size_t>(p)].plan.steps.size());
  for (std::size_t s = 0; s < c.plan.steps.size(); ++s) {
    BoundStep step;
    step.kernel = c.kernels[s].get();
    step.number = number++;
    step.exchange = c.exchanges[s];
    step.starts = step.exchange >= 0 && c.plan.steps[s].op != &wait_op;
    step.outer = c.plan.steps[s].outer;
    step.positions = static_cast<int>(c.plan.steps[s].positions());
    for (const auto* views : {&c.plan.steps[s].inputs, &c.plan.steps[s].outputs}) {
      for (const View& v : *views) {
        step.base.push_back(address(c, call, v));
        step.stride.push_back(v.loop_stride * byte_size(v.type.dtype));
      }
    }
    for (std::size_t d = 0; d < step.outer.size(); ++d) {
      for (const auto* views : {&c.plan.steps[s].inputs, &c.plan.steps[s].outputs}) {
        for (const View& v : *views) step.moves.push_back(v.outer[d] * byte_size(v.type.dtype));
      }
    }
    bound.steps.push_back(std::move(step));
  }
  return bound;
}

void CpuExecutable::run(int list) {
  const bool traced = list == traced_list_ && traced_runs_ > 0;
  const std::int64_t begin = traced ? now_ns() : 0;
  pool_->run(bodies_[static_cast<std::size_t>(list)]);
  if (traced) {
    trace_.runs.push_back({.step = -1, .begin_ns = begin, .end_ns = now_ns()});
    --traced_runs_;
  }
  if (exchanges_ != nullptr) exchanges_->expect_none_failed();
  if (placed_.check_replicas) expect_equal_replicas();
}

void CpuExecutable::expect_equal_replicas() const {
  for (const Compiled& c : compiled_) {
    for (const Step& step : c.plan.steps) {
      if (step.op != &replicas_differ_op) continue;
      std::int32_t differing = 0;
      std::memcpy(&differing, c.constants[static_cast<std::size_t>(step.outputs[0].buffer)],
                  sizeof(differing));
      if (differing != 0)
        fail(ErrorCode::internal, format("{}, {}: {} elements differ between devices", c.plan.name,
                                         step.name, differing));
    }
  }
}

void CpuExecutable::walk(int list, int number) const {
  Worker worker;
  worker.number = number;
  if (list == traced_list_ && traced_runs_ > 0)
    worker.spans = &trace_.threads[static_cast<std::size_t>(number)];
  worker.operands = operand_space_[static_cast<std::size_t>(number)].data();
  worker.args = {
      worker.operands, memory_.data() + shared_offset_,
      memory_.data() + worker_offset_ + worker_bytes_ * static_cast<std::size_t>(number)};
  for (const BoundCall& call : lists_[static_cast<std::size_t>(list)]) {
    auto loop = call.plan->loops.begin();
    for (int s = 0; s < static_cast<int>(call.steps.size());) {
      if (loop == call.plan->loops.end() || loop->first != s) {
        run_step(call.steps[static_cast<std::size_t>(s++)], 0, worker);
        continue;
      }
      for (std::int64_t trip = 0; trip < loop->trips; ++trip) {
        const std::int64_t iteration = loop->reverse ? loop->trips - 1 - trip : trip;
        for (int t = loop->first; t <= loop->last; ++t)
          run_step(call.steps[static_cast<std::size_t>(t)], iteration, worker);
      }
      s = loop->last + 1;
      ++loop;
    }
  }
}

void CpuExecutable::address_position(const BoundStep& step, std::int64_t iteration, int position,
                                     Worker& worker) {
  const std::size_t operands = step.base.size();
  for (std::size_t i = 0; i < operands; ++i)
    worker.operands[i] = step.base[i] + iteration * step.stride[i];
  for (std::size_t d = step.outer.size(); d-- > 0;) {
    const std::int64_t at = position % step.outer[d];
    position /= static_cast<int>(step.outer[d]);
    for (std::size_t i = 0; i < operands; ++i)
      worker.operands[i] += at * step.moves[d * operands + i];
  }
}

// Positions of a kernel of one phase are pieces like others; several phases share scratch, so
// positions follow one another.
void CpuExecutable::run_step(const BoundStep& step, std::int64_t iteration, Worker& worker) const {
  if (step.kernel == nullptr) return run_exchange(step, iteration, worker);
  const int phases = static_cast<int>(step.kernel->phases().size());
  const int together = phases == 1 ? step.positions : 1;
  for (int first = 0; first < step.positions; first += together) {
    for (int phase = 0; phase < phases; ++phase)
      run_phase(step, iteration, phase, first, together, worker);
  }
}

// Phases of one piece are run by worker 0 without a barrier behind them; the next phase of several
// pieces waits for it.
void CpuExecutable::run_phase(const BoundStep& step, std::int64_t iteration, int phase,
                              int first_position, int positions, Worker& worker) const {
  const int each = step.kernel->phases()[static_cast<std::size_t>(phase)];
  const int pieces = each * positions;
  const auto lost = [&] { return exchanges_ != nullptr && exchanges_->failed(); };
  if (pieces <= 1) {
    if (worker.number == 0 && pieces == 1 && !lost()) {
      const Span span(worker, step, iteration, phase);
      address_position(step, iteration, first_position, worker);
      step.kernel->run(worker.args, phase, 0);
      if (exchanges_ != nullptr) exchanges_->progress();
    }
    worker.alone = worker.alone || pieces == 1;
    return;
  }
  if (worker.alone) pool_->barrier();
  worker.alone = false;
  int addressed = -1;
  {
    const Span span(worker, step, iteration, phase);
    const bool skip = lost();  // known behind the barrier
    for (int piece = pool_->take_piece(); piece < pieces; piece = pool_->take_piece()) {
      const int position = first_position + piece / each;
      if (position != addressed) address_position(step, iteration, position, worker);
      addressed = position;
      if (!skip) step.kernel->run(worker.args, phase, piece % each);
      if (worker.number == 0 && exchanges_ != nullptr) exchanges_->progress();
    }
  }
  pool_->barrier();
}

// By worker 0. To start one nobody waits: what is sent and received is touched by no step before
// the one that waits, which is like a phase of one piece.
void CpuExecutable::run_exchange(const BoundStep& step, std::int64_t iteration,
                                 Worker& worker) const {
  worker.alone = worker.alone || !step.starts;
  if (worker.number != 0) return;
  const Span span(worker, step, iteration, 0);
  if (!step.starts) return exchanges_->wait(step.exchange);
  address_position(step, iteration, 0, worker);
  exchanges_->start(step.exchange, worker.operands[0], worker.operands[1]);
}

// A register as a value of a process's program.
ValueInfo CpuExecutable::register_info(std::size_t reg) const {
  ValueInfo info;
  info.type = module_.registers[reg].type;
  info.stacked = placed_.stacked[reg];
  for (const int a : memory_order(placed_.registers[reg], info.stacked)) {
    if (!part_.crosses(a)) info.shards.push_back(a);
  }
  return info;
}

std::vector<Shard> CpuExecutable::shards(int reg) {
  const auto r = static_cast<std::size_t>(reg);
  const ValueInfo info = register_info(r);
  const Dims local = info.type.shape;
  if (placed_.registers[r].partial != 0) return {};
  std::byte* at = memory_.data() + register_offset_[r];
  // One part after another in memory: of a stack, all parts of a layer before the next layer.
  const bool by_layer = info.stacked && !info.shards.empty();
  const std::int64_t layers = by_layer ? local[0] : 1;
  Dims extent = local, sizes;
  if (layers > 1) extent[0] = 1;
  if (layers == 0) return {};
  for (const std::int64_t a : info.shards)
    sizes.push_back(part_.atom_sizes[static_cast<std::size_t>(a)]);
  const auto bytes = static_cast<std::size_t>(element_count(extent) * byte_size(info.type.dtype));
  std::vector<Shard> out;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for_each_index(sizes, [&](const Dims& position) {
      Shard shard = shard_at(placed_.registers[r], info.shards, position, local);
      shard.extent = extent;
      if (layers > 1) shard.start[0] += layer;
      shard.bytes = {at, bytes};
      out.push_back(std::move(shard));
      at += bytes;
    });
  }
  std::ranges::sort(out, {}, &Shard::start);
  return out;
}

// The part of an array that is at this position along the atoms inside of the process.
Shard CpuExecutable::shard_at(const Spec& spec, const Dims& inside, const Dims& position,
                              const Dims& local) const {
  const Dims& sizes = part_.atom_sizes;
  Dims place(sizes.size(), 0);
  for (std::size_t i = 0; i < position.size(); ++i)
    place[static_cast<std::size_t>(inside[i])] = position[i];
  Shard shard;
  const AtomMask split = atoms_in(spec.dims);
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    const auto atom = static_cast<std::int64_t>(a);
    if (part_.crosses(atom)) place[a] = part_.place[a];
    shard.device = shard.device * sizes[a] + place[a];
    if (!part_.crosses(atom) || has(split, static_cast<int>(a))) continue;
    shard.copy = shard.copy * sizes[a] + place[a];
    shard.copies *= sizes[a];
  }
  for (std::size_t d = 0; d < local.size(); ++d) {
    std::int64_t block = 0;
    for (const int a : spec.dims[d])
      block = block * sizes[static_cast<std::size_t>(a)] + place[static_cast<std::size_t>(a)];
    shard.start.push_back(block * local[d]);
  }
  return shard;
}

std::string CpuExecutable::describe() const {
  std::string out;
  for (const Compiled& c : compiled_) {
    out += print(c.plan);
    for (std::size_t s = 0; s < c.kernels.size(); ++s) {
      if (c.kernels[s] == nullptr) continue;
      const Kernel& k = *c.kernels[s];
      int pieces = 0;
      for (const int n : k.phases()) pieces += n;
      out += format("    {}: {}, {} pieces in {} phases\n", c.plan.steps[s].name,
                    k.implementation(), pieces, k.phases().size());
    }
  }
  out += format("memory: registers {} bytes, arena {}, scratch {} + {} for each of {} workers\n",
                constants_offset_, shared_offset_ - arena_offset_, worker_offset_ - shared_offset_,
                worker_bytes_, pool_->workers());
  return out;
}

// Of one thread in one run.
std::size_t CpuExecutable::most_spans(int list) const {
  std::size_t count = 0;
  for (const BoundCall& call : lists_[static_cast<std::size_t>(list)]) {
    auto loop = call.plan->loops.begin();
    for (int s = 0; s < static_cast<int>(call.steps.size()); ++s) {
      while (loop != call.plan->loops.end() && loop->last < s) ++loop;
      const BoundStep& step = call.steps[static_cast<std::size_t>(s)];
      const std::size_t phases = step.kernel == nullptr ? 1 : step.kernel->phases().size();
      const int positions = phases == 1 ? 1 : step.positions;
      const bool inside = loop != call.plan->loops.end() && loop->first <= s;
      count += phases * static_cast<std::size_t>(positions * (inside ? loop->trips : 1));
    }
  }
  return count;
}

void CpuExecutable::start_trace(int list, int runs) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  const std::size_t spans = most_spans(list) * static_cast<std::size_t>(runs);
  const auto threads = static_cast<std::size_t>(pool_->workers());
  if (spans * threads * sizeof(TraceSpan) > kMostBytes) {
    fail(ErrorCode::usage,
         format("a trace of {} runs has {} entries for each of {} threads", runs, spans, threads),
         "trace fewer runs");
  }
  trace_ = {};
  trace_.threads.resize(threads);
  for (std::vector<TraceSpan>& t : trace_.threads) t.reserve(spans);
  trace_.runs.reserve(static_cast<std::size_t>(runs));
  traced_list_ = list;
  traced_runs_ = runs;
}

Trace CpuExecutable::take_trace() {
  traced_list_ = -1;
  for (const Compiled& c : compiled_) {
    for (std::size_t s = 0; s < c.plan.steps.size(); ++s) {
      const Step& step = c.plan.steps[s];
      const StepCost cost = cost_of(step);
      std::string op = step.op != nullptr       ? step.op->name
                       : step.group.ops.empty() ? "copy"
                                                : "fused";
      trace_.steps.push_back({c.plan.name, step.name, std::move(op),
                              c.kernels[s] == nullptr ? "mpi" : c.kernels[s]->implementation(),
                              cost.flops, cost.bytes});
    }
  }
  return std::exchange(trace_, {});
}

}  // namespace dew::cpu
