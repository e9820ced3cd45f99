// Page-aligned memory straight from the system, zero until written.
#pragma once

#include <cstddef>
#include <span>

namespace dew::cpu {

class Memory {
 public:
  Memory() = default;
  // At least one byte, so that arrays without elements have an address too. ErrorCode::usage with
  // the size if the system has not that much.
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dew::cpu
