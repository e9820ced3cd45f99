#include "dew/runtime/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew::cpu {

Memory::Memory(std::size_t bytes) : size_(std::max<std::size_t>(bytes, 1)) {
  void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    fail(ErrorCode::usage, format("cannot get {} bytes of memory: {}", bytes, std::strerror(errno)),
         "a smaller batch, more accumulation or remat = \"full\" needs less");
  }
  // Large pages where the system offers them: a model's pages are touched once each step.
  madvise(p, size_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace dew::cpu
