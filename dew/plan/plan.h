// The plan: programs as steps over buffers, plain data. What runs when, and where every byte lives,
// is decided here; a runtime only turns steps into kernels and walks them.
#pragma once

#include <string>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

// A part of a buffer as a step sees it.
struct View {
  int buffer = -1;
  Type type;                     // shape as the step sees it
  Dims strides;                  // elements, one a dimension; 0 repeats
  std::int64_t offset = 0;       // elements from the start of the buffer
  std::int64_t loop_stride = 0;  // elements that an iteration of the enclosing loop adds
  Dims outer = {};               // elements that a position adds, one a dimension of Step::outer
};

// One pointwise op inside a fused group. Registers 0..inputs-1 are the group's inputs, then one a
// micro-op, in order. A register holds f32 (from f32 and bf16), i32, u32 or pred, as `dtype` says;
// bf16 is rounded only when stored.
struct MicroOp {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<int> registers;  // of the operands
  DType dtype = DType::f32;    // of the result in the program
};

// A group of pointwise ops over one iteration space: each input is read once, each output written
// once, and the values between them never leave a tile that stays in L1. Views have the group's
// shape; strides say what repeats.
struct FusedGroup {
  Dims shape;
  std::vector<DType> inputs;  // as stored
  std::vector<MicroOp> ops;
  std::vector<int> outputs;  // registers; an output may overwrite an input of the same view
};

struct Step {
  const OpDef* op = nullptr;  // null: a fused group, or a copy (no group either)
  Attrs attrs;
  FusedGroup group;
  std::vector<View> inputs, outputs;
  std::string name;  // for dumps and profiles: "%7 dot"
  // The step runs once at every position of these sizes, views moved by their `outer` strides:
  // parts of different devices that no dimension of the kernel can hold.
  Dims outer = {};
  int exchange = -1;  // number of the exchange that it starts or waits for

  std::int64_t positions() const { return element_count(outer); }
};

enum class BufferKind {
  arena,     // `offset` bytes from the start of the arena
  input,     // the program's input number `index`
  output,    // the program's output number `index`
  constant,  // the result of the node `op` {`attrs`} without operands, made once
  count,     // i32[]: what replica checks have found, added up over runs; zero at first
};

struct Buffer {
  BufferKind kind = BufferKind::arena;
  Type type;
  int index = -1;
  std::int64_t offset = 0;
  int first_step = 0, last_step = 0;  // arena: live while these run (a loop counts whole)
  const OpDef* op = nullptr;
  Attrs attrs;
};

// Steps first..last (inclusive) run `trips` times.
struct LoopRange {
  int first = 0, last = 0;
  std::int64_t trips = 0;
  bool reverse = false;
};

// Everything of one program.
struct Plan {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<LoopRange> loops;  // disjoint, ascending
  std::int64_t arena_bytes = 0;
};

// What is planned of devices that hold the same.
enum class Replicas {
  once,     // stored and computed once
  checked,  // results of steps are stored and computed for every device, and compared
};

// A step with this op counts elements of its input that differ, in any bit, from those of the first
// position along the leading dimensions `dims` (Axes: how many), and adds the number to its output.
// No program has it.
extern const OpDef replicas_differ_op;

// Exchanges between processes. A start sends its input and fills its output by the time that the
// step wait_op of the same number has run; attributes are the atoms (GroupAttrs) along which the
// members' processes differ, in ascending order. Inputs and outputs have no gaps. No program has
// these.
//   all_reduce      output: the sums of all members' inputs
//   all_gather      output [members, input]
//   reduce_scatter  input [members, output]: sums of what the members have for this one
//   all_to_all      input [members, part] -> output [members, part]
extern const OpDef start_all_reduce_op, start_all_gather_op, start_reduce_scatter_op,
    start_all_to_all_op;
extern const OpDef wait_op;  // its input is the start's, which must not change before

// The mesh that a program's values are distributed over, and this process's part of it.
struct MeshPart {
  Dims atom_sizes = {};
  // Of each atom where this process stands along it, or -1 if it holds all positions. Empty: it
  // holds the whole mesh.
  Dims place = {};

  bool crosses(std::int64_t atom) const {
    return !place.empty() && place[static_cast<std::size_t>(atom)] >= 0;
  }
  // Ranks of the processes that stand where this one does along all atoms but `atoms`, which
  // cross: by their places along these, the first one the major. Ranks are places along all atoms
  // that cross, again the first one the major.
  std::vector<int> members(const Dims& atoms) const;
};

// `replaces[i]` is the input that output i overwrites in place, or -1. The plan holds and computes
// the parts of all devices of this process, those that are equal once. ValueInfo::shards name atoms
// that lie inside of a process; groups of collectives may have both kinds. Throws an internal Error
// for a program it cannot plan (a scan in a scan).
Plan make_plan(const Program& program, std::span<const int> replaces, const MeshPart& part = {},
               Replicas replicas = Replicas::once);

// The array that holds a value, all devices' parts of it: [atoms.., local..], of a stack
// [layers, atoms.., local..].
Type memory_type(const ValueInfo& value, const Dims& atom_sizes);

// One line a step: name, operands with places, and the arena's size; for people and golden tests.
std::string print(const Plan& plan);

// True if the elements lie row-major without gaps.
bool is_dense(const View& view);

// What a step reads or writes at all positions, as one view.
View at_all_positions(const Step& step, const View& view);

}  // namespace dew
