// The processes of a job, as training code sees them: who they are, and how they come to one
// answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dew {

// All processes run the same program and ask each other the same things in the same order; `what`
// stands in the message of one that waits in vain. Belongs to the thread that trains. Whatever goes
// wrong between processes is ErrorCode::process with the name of the one that failed: the job is
// lost then, and no state may be saved.
class Processes {
 public:
  virtual ~Processes() = default;

  virtual int rank() const = 0;  // from 0
  virtual int count() const = 0;
  // "rank 3 (node-b)": how messages call it.
  virtual std::string name(int rank) const = 0;

  // The texts of all processes, by rank.
  virtual std::vector<std::string> exchange(std::string_view mine, const char* what) = 0;
  // The largest of all their numbers.
  virtual std::int64_t largest(std::int64_t mine, const char* what) = 0;

  // The start is over: from here on nobody may let the others wait for longer than a step.
  virtual void steps_begin() {}

  bool first() const { return rank() == 0; }
};

// A process that is alone.
Processes& one_process();

// Does `work` in every process and returns when all have done it. If it throws an Error in any of
// them, this throws in all: the same error where all processes met the same one (a bad config,
// say), otherwise ErrorCode::process with the name of the first that failed and its reason.
void do_together(Processes& processes, const char* what, const std::function<void()>& work);

// Process 0 does `work`, the others wait; what it returns is for all. If it throws an Error, this
// throws the same in all.
std::string first_says(Processes& processes, const char* what,
                       const std::function<std::string()>& work);
void first_does(Processes& processes, const char* what, const std::function<void()>& work);

}  // namespace dew
