// A fused group made ready to run: what is loaded, computed and stored for each tile, and where every register lives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dew/runtime/cpu/kernels/fused_ops.h"

namespace dew::cpu {

// How an input reaches its register.
enum class Source {
  in_place,  // dense and of 32 bits: the register points into the buffer
  uniform,   // one element for all: a vector of it, made once a piece
  periodic,  // every tile sees the same elements (a row vector under tiles of whole rows): loaded once a piece
  runs,      // pointed to where the tile lies inside one run, else copied
  copied,    // converted, or strided
};

struct Register {
  int slot = -1;              // number of its tile; -1: it points into a buffer, or is a splat
  int splat = -1;             // number of its vector, if all elements are equal
  bool resident = false;      // the same for all tiles of a piece
};

struct Compute {
  MicroFn fn = nullptr;
  double number = 0;
  int to = 0, count = 0;
  int operands[3] = {};
};

struct TileStep {
  enum Kind { load, compute, store } kind = load;
  int index = 0;  // of the input, the compute or the output
};

struct FusedProgram {
  std::int64_t elements = 0;
  std::int64_t tile = 0;         // elements
  std::int64_t row = 0;          // tiles end where a row of so many elements ends; 0: they need not
  std::vector<Strided> inputs, outputs;
  std::vector<Source> sources;
  std::vector<int> output_registers;
  std::vector<bool> in_place;    // of outputs: their register points into the buffer, nothing is stored
  std::vector<Register> registers;
  std::vector<Compute> computes;
  std::vector<TileStep> once, each;  // for each piece, for each tile
  int slots = 0, splats = 0;

  // Floats of a slot: padded, so that slots do not lie a multiple of 4096 bytes apart.
  std::size_t slot_floats() const { return (static_cast<std::size_t>(tile) + 15) / 16 * 16 + 16; }
};

// Empty, with the reason, if a view or an op is not taken.
std::optional<FusedProgram> fused_program(const Step& step, std::string& why_not);

}  // namespace dew::cpu
