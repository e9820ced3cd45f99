// What training code sees of whatever runs its programs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/ir/module.h"

namespace dew {

// The part of a register that one device holds.
struct Shard {
  Dims start, extent;          // its box in the whole array
  std::span<std::byte> bytes;  // row-major
};

// A module made ready to run. Registers hold zeros until something is written.
class Executable {
 public:
  virtual ~Executable() = default;

  // Runs call list number `list` once, to its end.
  virtual void run(int list) = 0;

  // The memory of a register, for reading and writing between runs.
  virtual std::vector<Shard> shards(int reg) = 0;

  virtual const Module& module() const = 0;

  // Bytes of registers, arena and scratch, as planned.
  virtual std::int64_t planned_bytes() const = 0;

  // The plans as text.
  virtual std::string describe() const = 0;
};

// A kind of device, and how many of them.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu"
  virtual std::unique_ptr<Executable> load(Module module) = 0;
};

}  // namespace dew
