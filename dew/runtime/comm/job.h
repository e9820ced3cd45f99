// The processes of a job as the runtime sees them: groups, and exchanges that go on while something
// else is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dew/base/dtype.h"
#include "dew/runtime/processes.h"

namespace dew::comm {

enum class Pattern { all_reduce, all_gather, reduce_scatter, all_to_all };

// One exchange among the members of a group, the same each time it is made. What arrives lies in
// the order of the members; sums are made in the same order each time.
//   all_reduce      count elements -> count
//   all_gather      count -> [members, count]
//   reduce_scatter  [members, count] -> count
//   all_to_all      [members, count] -> [members, count]
struct Exchange {
  Pattern pattern = Pattern::all_reduce;
  DType dtype = DType::f32;  // sums: f32, bf16 (rounded after each addition), i32 or u32
  std::int64_t count = 0;    // of one member's part, below 2^31
  int group = 0;             // as group() numbered it
  std::string name;          // for messages: "micro %7 all_reduce"
};

// Belongs to one thread. All processes start the same exchanges of a group in the same order, and
// wait for them in any.
class Job : public Processes {
 public:
  // The group of these ranks, in the order of members, this process among them; all of them ask for
  // it. Returns its number.
  virtual int group(std::span<const int> ranks) = 0;

  // Begins and returns a number to wait by. Neither array may be touched until then.
  virtual int start(const Exchange& exchange, const std::byte* from, std::byte* to) = 0;
  // Returns when the exchange is done. Throws ErrorCode::process with who is missing if the others
  // do not come within the time-out, or have failed.
  virtual void wait(int number, const Exchange& exchange) = 0;
  // To be called now and then while something is computed: exchanges that were started go on.
  virtual void progress() noexcept = 0;

  // Processes that share this one's cores, itself included.
  virtual int neighbours() const = 0;
};

}  // namespace dew::comm
