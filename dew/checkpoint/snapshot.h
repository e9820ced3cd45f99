// Writes states while a run goes on: from a copy, on a thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "dew/checkpoint/writer.h"

namespace dew {

// At most one write is under way. What it costs: memory for one copy of the state, kept for the
// next one; the time of that copy; a core's time while it is written. Example:
//
//   snapshot.start(state, [=](std::span<const StateTensor> copy) {
//     write_checkpoint(directory, info, copy);
//   });
//   ...              // the state may change
//   snapshot.poll(); // throws if the write has failed by now
//   snapshot.wait(); // throws if it fails in the end
//
// Belongs to one thread.
class Snapshot {
 public:
  using Write = std::function<void(std::span<const StateTensor> copy)>;

  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();  // waits

  // Waits for the write before and throws what it threw; otherwise copies the arrays and returns
  // while `write` works on the copy.
  void start(std::span<const StateTensor> state, Write write);

  // Has the last write come to an end, a good one or not, or was there none?
  bool ended() const { return ended_; }
  // Has the last write succeeded, or was there none? What it threw is thrown here, once.
  bool poll();
  void wait();

 private:
  void copy(std::span<const StateTensor> state);

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t capacity_ = 0;
  std::vector<StateTensor> copy_;  // in the buffer
  std::thread thread_;
  std::atomic<bool> ended_ = true;
  std::exception_ptr error_;  // of the thread; read after it has ended
};

}  // namespace dew
