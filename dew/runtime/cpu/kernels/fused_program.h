// A fused group made ready to run: strings of codes, and where their places lie.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/fused_ops.h"

namespace dew::cpu {

// How an input's place is filled.
enum class Source {
  in_place,  // dense: it points into the buffer; codes load the buffer's dtype. All others hold
             // 32-bit elements
  uniform,   // one element for all: a block of it, made once a piece
  periodic,  // every tile sees the same elements (a row vector under tiles of whole rows): copied
             // once a piece
  runs,      // points into the buffer while the tile lies inside one run, else copied
  copied,    // strided: copied for each tile
};

// Memory behind a place, in floats from the start of the worker's.
struct Room {
  std::size_t offset = 0;
  bool whole_tile = false;  // else one block
};

struct FusedProgram {
  const CodeTable* table = nullptr;
  const RangeIo* io = nullptr;
  std::int64_t elements = 0;
  std::int64_t tile = 0;  // elements, at least a block's
  std::int64_t row = 0;   // tiles end where a row of so many elements ends; 0: they need not
  std::vector<Strided> inputs, outputs;
  std::vector<Source> sources;   // of inputs
  std::vector<Code> once, each;  // strings for each piece and for each block; `once` may be empty
  bool once_whole_tile = false;  // `once` runs over a tile, not one block

  // Places: inputs, outputs (dense: in the buffer; others: a tile that is stored afterwards), then
  // values.
  std::vector<Room> rooms;
  std::size_t floats = 0;  // of all rooms

  std::size_t tile_floats() const {
    return (static_cast<std::size_t>(tile) + kBlock - 1) / kBlock * kBlock;
  }
};

// Empty, with the reason, if a view or an op is not taken.
std::optional<FusedProgram> fused_program(const Step& step, std::string& why_not);

}  // namespace dew::cpu
