// Pointwise groups: walks tiles and runs the codes of a FusedProgram over their blocks.
#include <algorithm>
#include <cstring>

#include "dew/runtime/cpu/kernels/fused_program.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;

// One piece at work, in the memory of the worker: places, then rooms.
class Machine {
 public:
  Machine(const FusedProgram& program, const KernelArgs& args)
      : p_(program),
        buffers_(args.operands),
        places_(reinterpret_cast<Place*>(args.worker)),
        rooms_(reinterpret_cast<float*>(args.worker + place_bytes(program))) {
    for (std::size_t k = 0; k < p_.rooms.size(); ++k) to_room(k);
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) load_once(i);
    if (!p_.once.empty())
      p_.table->run(p_.once.data(), places_, 0, p_.once_whole_tile ? p_.tile_floats() : kBlock);
  }

  static std::size_t bytes(const FusedProgram& p) {
    return place_bytes(p) + p.floats * sizeof(float);
  }

  void tile(std::int64_t begin, std::size_t n) const {
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) load(i, begin, n);
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      const Strided& s = p_.outputs[o];
      if (s.dense()) places_[p_.inputs.size() + o] = {output(o) + begin * byte_size(s.dtype)};
    }
    const std::size_t whole = n / kBlock * kBlock;
    p_.table->run(p_.each.data(), places_, 0, whole);
    if (whole < n) rest(whole, n - whole);
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      const Strided& s = p_.outputs[o];
      if (!s.dense()) p_.io->store(s, output(o), begin, n, room(p_.inputs.size() + o));
    }
  }

 private:
  static std::size_t place_bytes(const FusedProgram& p) {
    return (p.rooms.size() * sizeof(Place) + 63) / 64 * 64;
  }

  float* room(std::size_t k) const { return rooms_ + p_.rooms[k].offset; }
  void to_room(std::size_t k) const {
    places_[k] = {reinterpret_cast<std::byte*>(room(k)),
                  p_.rooms[k].whole_tile ? kWholeTile : kOneBlock};
  }
  std::byte* output(std::size_t o) const { return buffers_[p_.inputs.size() + o]; }

  void load_block(std::size_t i, std::int64_t element) const {
    float* const to = room(i);
    p_.io->load(p_.inputs[i], buffers_[i], element, 1, to);
    for (std::size_t k = 1; k < kBlock; ++k) std::memcpy(to + k, to, sizeof(float));
  }

  void load_once(std::size_t i) const {
    if (p_.sources[i] == Source::uniform) load_block(i, 0);
    if (p_.sources[i] == Source::periodic)
      p_.io->load(p_.inputs[i], buffers_[i], 0, static_cast<std::size_t>(p_.tile), room(i));
  }

  void load(std::size_t i, std::int64_t begin, std::size_t n) const {
    const Strided& s = p_.inputs[i];
    switch (p_.sources[i]) {
      case Source::in_place:
        places_[i] = {buffers_[i] + begin * byte_size(s.dtype)};
        break;
      case Source::runs:
        load_run(i, begin, n);
        break;
      case Source::copied:
        p_.io->load(s, buffers_[i], begin, n, room(i));
        break;
      case Source::uniform:
      case Source::periodic:
        break;
    }
  }

  void load_run(std::size_t i, std::int64_t begin, std::size_t n) const {
    const Strided& s = p_.inputs[i];
    const Runs runs(s, begin);
    to_room(i);
    if (runs.left() < static_cast<std::int64_t>(n)) {
      p_.io->load(s, buffers_[i], begin, n, room(i));
    } else if (s.step() == 0) {
      load_block(i, begin);
      places_[i].mask = kOneBlock;
    } else {
      places_[i].p = buffers_[i] + runs.offset() * byte_size(s.dtype);
    }
  }

  // The elements behind the last whole block: places in buffers are replaced by a block that holds
  // copies, so that nothing beyond the buffers is touched.
  void rest(std::size_t first, std::size_t n) const {
    const std::size_t inputs = p_.inputs.size();
    for (std::size_t i = 0; i < inputs; ++i) {
      const bool in_buffer = places_[i].p != reinterpret_cast<std::byte*>(room(i));
      if (!in_buffer) continue;
      const auto size = static_cast<std::size_t>(byte_size(p_.inputs[i].dtype));
      std::memcpy(room(i), places_[i].p + first * size, n * size);
      places_[i] = {reinterpret_cast<std::byte*>(room(i)), kOneBlock};
    }
    std::byte* ends[kMaxOutputs] = {};
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      if (!p_.outputs[o].dense()) continue;
      ends[o] =
          places_[inputs + o].p + first * static_cast<std::size_t>(byte_size(p_.outputs[o].dtype));
      places_[inputs + o] = {reinterpret_cast<std::byte*>(room(inputs + o)), kOneBlock};
    }
    p_.table->run(p_.each.data(), places_, first, first + kBlock);
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      const auto size = static_cast<std::size_t>(byte_size(p_.outputs[o].dtype));
      if (ends[o] != nullptr) std::memcpy(ends[o], room(inputs + o), n * size);
    }
  }

  const FusedProgram& p_;
  std::byte* const* buffers_;
  Place* places_;
  float* rooms_;

 public:
  static constexpr std::size_t kMaxOutputs = 64;
};

class Fused final : public Kernel {
 public:
  explicit Fused(FusedProgram program) : program_(std::move(program)) {
    pieces_ = cut_pieces(program_.elements, kPieceElements,
                         program_.row == 0 ? std::min(program_.tile, kPieceElements) : 128);
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
  if (step.op != nullptr || step.group.outputs.empty() ||
      step.group.outputs.size() > Machine::kMaxOutputs) {
    why_not = "not a fused group, or one of more than 64 outputs";
    return nullptr;
  }
  auto program = fused_program(step, why_not);
  if (!program) return nullptr;
  return std::make_unique<Fused>(std::move(*program));
}

}  // namespace dew::cpu
