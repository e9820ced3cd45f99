// What ran when: the record of some runs of an executable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dew {

// A step of a plan. `flops` and `bytes` are those of one run, all devices of this process together:
// operations of its formula (0: not counted), and the memory that it must at least read and write.
struct TracedStep {
  std::string program, name;  // "micro", "%7 dot"
  std::string op;             // "dot", "fused", "copy"
  std::string implementation;
  double flops = 0, bytes = 0;
};

// One thread on its part of one phase of a step. Times in nanoseconds, from any fixed moment.
struct TraceSpan {
  std::int32_t step = 0;  // index into Trace::steps
  std::int32_t phase = 0;
  std::int64_t iteration = 0;  // of the loop that the step is in
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct Trace {
  std::vector<TracedStep> steps;
  std::vector<std::vector<TraceSpan>> threads;  // of each thread, ascending in time
  std::vector<TraceSpan> runs;                  // from start to end of each run; step is -1
};

}  // namespace dew
