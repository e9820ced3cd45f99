#include "dew/checkpoint/snapshot.h"

#include <cstring>
#include <utility>

namespace dew {

Snapshot::~Snapshot() {
  if (thread_.joinable()) thread_.join();
}

void Snapshot::copy(std::span<const StateTensor> state) {
  std::size_t bytes = 0;
  for (const StateTensor& tensor : state) {
    for (const StateTensor::Part& part : tensor.parts) bytes += part.bytes.size();
  }
  if (bytes > capacity_) {
    buffer_.reset();  // before there are two
    capacity_ = 0;
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity_ = bytes;
  }
  copy_.assign(state.begin(), state.end());
  std::byte* at = buffer_.get();
  for (StateTensor& tensor : copy_) {
    for (StateTensor::Part& part : tensor.parts) {
      if (!part.bytes.empty()) std::memcpy(at, part.bytes.data(), part.bytes.size());
      part.bytes = {at, part.bytes.size()};
      at += part.bytes.size();
    }
  }
}

void Snapshot::start(std::span<const StateTensor> state, Write write) {
  wait();
  copy(state);
  ended_ = false;
  thread_ = std::thread([this, write = std::move(write)] {
    try {
      write(copy_);
    } catch (...) {
      error_ = std::current_exception();
    }
    ended_ = true;
  });
}

bool Snapshot::poll() {
  if (!ended_) return false;
  wait();
  return true;
}

void Snapshot::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace dew
