// Pointwise groups: walks tiles through the micro-ops of a FusedProgram.
#include <algorithm>
#include <cstring>

#include "dew/runtime/cpu/kernels/fused_program.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;

// Registers of one piece, in the memory of the worker.
struct Machine {
  const FusedProgram& p;
  const RangeIo& io;
  std::byte* const* buffers;
  Operand* registers;
  float* slots;
  float* splats;

  Machine(const FusedProgram& program, const KernelArgs& args)
      : p(program), io(range_io()), buffers(args.operands) {
    const std::size_t table = table_bytes(p);
    registers = reinterpret_cast<Operand*>(args.worker);
    splats = reinterpret_cast<float*>(args.worker + table);
    slots = splats + static_cast<std::size_t>(p.splats) * kSplat;
    for (std::size_t r = 0; r < p.registers.size(); ++r) {
      const Register& reg = p.registers[r];
      registers[r] = Operand();
      if (reg.splat >= 0) registers[r] = {splats + static_cast<std::size_t>(reg.splat) * kSplat, 0};
      else if (reg.slot >= 0) registers[r].p = slot(reg);
    }
  }

  static std::size_t table_bytes(const FusedProgram& p) { return (p.registers.size() * sizeof(Operand) + 63) / 64 * 64; }

  static std::size_t bytes(const FusedProgram& p) {
    return table_bytes(p) + sizeof(float) * (static_cast<std::size_t>(p.splats) * kSplat +
                                             static_cast<std::size_t>(p.slots) * p.slot_floats());
  }

  float* slot(const Register& reg) const { return slots + static_cast<std::size_t>(reg.slot) * p.slot_floats(); }

  std::byte* output(std::size_t o) const { return buffers[p.inputs.size() + o]; }

  void load_splat(std::size_t i, std::int64_t begin, float* to) const {
    io.load(p.inputs[i], buffers[i], begin, 1, to);
    for (std::size_t lane = 1; lane < kSplat; ++lane) std::memcpy(to + lane, to, sizeof(float));
  }

  // Inputs are only read; Operand has no const because results are operands too.
  void load_run(std::size_t i, std::int64_t begin, std::size_t n) const {
    const Strided& s = p.inputs[i];
    float* const tile = slot(p.registers[i]);
    const Runs runs(s, begin);
    if (runs.left() < static_cast<std::int64_t>(n)) {
      io.load(s, buffers[i], begin, n, tile);
      registers[i] = {tile};
    } else if (s.step() == 0) {
      load_splat(i, begin, tile);
      registers[i] = {tile, 0};
    } else {
      registers[i] = {reinterpret_cast<float*>(buffers[i]) + runs.offset()};
    }
  }

  void load(std::size_t i, std::int64_t begin, std::size_t n) const {
    switch (p.sources[i]) {
      case Source::in_place: registers[i].p = reinterpret_cast<float*>(buffers[i]) + begin; break;
      case Source::uniform: load_splat(i, 0, registers[i].p); break;
      case Source::runs: load_run(i, begin, n); break;
      case Source::periodic:
      case Source::copied: io.load(p.inputs[i], buffers[i], begin, n, registers[i].p); break;
    }
  }

  void compute(const Compute& c, std::size_t n) const {
    MicroArgs args;
    args.to = registers[c.to].p;
    for (int k = 0; k < c.count; ++k) args.operands[k] = registers[c.operands[k]];
    args.n = registers[c.to].mask == 0 ? kSplat : n;
    args.number = c.number;
    c.fn(args);
  }

  void store(std::size_t o, std::int64_t begin, std::size_t n) const {
    const Operand from = registers[p.output_registers[o]];
    const Strided& s = p.outputs[o];
    const bool there = s.dense32() && reinterpret_cast<float*>(output(o)) + begin == from.p;
    if (!there) io.store(s, output(o), begin, n, from);
  }

  void walk(const std::vector<TileStep>& steps, std::int64_t begin, std::size_t n) const {
    for (const TileStep& step : steps) {
      const auto index = static_cast<std::size_t>(step.index);
      switch (step.kind) {
        case TileStep::load: load(index, begin, n); break;
        case TileStep::compute: compute(p.computes[index], n); break;
        case TileStep::store: store(index, begin, n); break;
      }
    }
  }

  void tile(std::int64_t begin, std::size_t n) const {
    for (std::size_t o = 0; o < p.outputs.size(); ++o) {
      if (p.in_place[o]) registers[p.output_registers[o]].p = reinterpret_cast<float*>(output(o)) + begin;
    }
    walk(p.each, begin, n);
  }
};

class Fused final : public Kernel {
 public:
  explicit Fused(FusedProgram program) : program_(std::move(program)) {
    pieces_ = cut_pieces(program_.elements, kPieceElements, program_.row == 0 ? program_.tile : 64);
    phases_ = {pieces_.count};
    worker_scratch_ = Machine::bytes(program_);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    const FusedProgram& p = program_;
    std::int64_t begin = piece * pieces_.size;
    const std::int64_t end = std::min(begin + pieces_.size, p.elements);
    if (begin >= end) return;
    const Machine machine(p, args);
    machine.walk(p.once, 0, static_cast<std::size_t>(p.tile));
    while (begin < end) {
      std::int64_t stop = std::min(begin + p.tile, end);
      if (p.row != 0) stop = std::min(stop, (begin / p.row + 1) * p.row);
      machine.tile(begin, static_cast<std::size_t>(stop - begin));
      begin = stop;
    }
  }

 private:
  FusedProgram program_;
  Pieces pieces_;
};

}  // namespace

std::unique_ptr<Kernel> make_fused(const Step& step, std::string& why_not) {
  if (step.op != nullptr || step.group.outputs.empty()) {
    why_not = "not a fused group";
    return nullptr;
  }
  auto program = fused_program(step, why_not);
  if (!program) return nullptr;
  return std::make_unique<Fused>(std::move(*program));
}

}  // namespace dew::cpu
