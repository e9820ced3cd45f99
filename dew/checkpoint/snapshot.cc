#include "dew/checkpoint/snapshot.h"

#include <cstring>
#include <utility>

namespace dew {

Snapshot::~Snapshot() {
  if (thread_.joinable()) thread_.join();
}

void Snapshot::copy(std::span<const WholeTensor> state) {
  std::size_t bytes = 0;
  for (const WholeTensor& tensor : state) bytes += tensor.bytes.size();
  if (bytes > capacity_) {
    buffer_.reset();  // before there are two
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity_ = bytes;
  }
  copy_.assign(state.begin(), state.end());
  std::byte* at = buffer_.get();
  for (WholeTensor& tensor : copy_) {
    if (!tensor.bytes.empty()) std::memcpy(at, tensor.bytes.data(), tensor.bytes.size());
    tensor.bytes = {at, tensor.bytes.size()};
    at += tensor.bytes.size();
  }
}

void Snapshot::start(std::span<const WholeTensor> state, Write write) {
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
