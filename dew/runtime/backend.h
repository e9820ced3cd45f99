// What training code sees of whatever runs its programs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/base/error.h"
#include "dew/ir/module.h"
#include "dew/runtime/processes.h"
#include "dew/runtime/trace.h"
#include "dew/sharding/spec.h"

namespace dew {

// A part of a register: what one device of this process holds of it, or of one layer of a stack.
// Parts that several devices hold are listed once.
struct Shard {
  Dims start, extent;          // its box in the whole array
  std::span<std::byte> bytes;  // row-major
  std::int64_t device = 0;     // the first one of this process that holds it
  // So many processes hold it, and this one is number `copy` of them.
  std::int64_t copy = 0, copies = 1;
};

// The devices that a module is partitioned for, and where they hold its registers. Without atoms in
// the mesh: one device, everything whole.
struct Placed {
  Mesh mesh = {};
  std::vector<Spec> registers = {};  // of each register
  std::vector<bool> stacked = {};    // its first dimension is a stack's, or the micro steps'
  // Of each atom where this process stands along it, or -1 if it has the devices at all positions.
  // Empty: it has all devices.
  Dims place = {};
  // Results that several devices hold are computed for each of them, and must have the same bits: a
  // run throws an internal Error otherwise. Only where devices are simulated.
  bool check_replicas = false;
};

// A module needs more memory than there is. What a caller knows better, it says instead: the sizes
// that it asked for, and which of them would fit.
class TooLarge : public Error {
 public:
  // In bytes: what outlives a call, what a call needs besides, and what this machine has.
  TooLarge(double kept_bytes, double call_bytes, double there);

  double kept, call, memory;
};

// A module made ready to run. Registers hold zeros until something is written.
class Executable {
 public:
  virtual ~Executable() = default;

  // Runs call list number `list` once, to its end; in all processes of the job at once. After
  // ErrorCode::process what registers hold means nothing.
  virtual void run(int list) = 0;

  // The memory of a register, for reading and writing between runs: the parts of all processes
  // cover the whole array, those of one of them no element twice, in ascending order of their
  // boxes. None for sums that devices have not joined.
  virtual std::vector<Shard> shards(int reg) = 0;

  virtual const Module& module() const = 0;

  // Bytes of registers, arena and scratch, as planned.
  virtual std::int64_t planned_bytes() const = 0;

  // Of that, what a program needs beside its registers and constants, by number of the program.
  virtual std::int64_t arena_bytes(int program) const = 0;

  // The plans as text.
  virtual std::string describe() const = 0;

  // From here on the next `runs` runs of call list number `list` are recorded; take_trace() gives
  // the record and stops. Throws ErrorCode::usage for more than memory is kept for.
  virtual void start_trace(int list, int runs) = 0;
  virtual Trace take_trace() = 0;
};

// A kind of device, and how many of them.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu"
  // How many there are, over all processes.
  virtual std::int64_t devices() const = 0;
  // Those that the devices are spread over, evenly.
  virtual Processes& processes() { return one_process(); }
  // `module` is that of one device. Throws TooLarge.
  virtual std::unique_ptr<Executable> load(Module module, Placed placed) = 0;
};

}  // namespace dew
