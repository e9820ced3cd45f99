#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "dew/runtime/cpu/onednn.h"

namespace {

std::atomic<std::int64_t> count = 0;

void* allocate(std::size_t size) {
  if (!dew::cpu::inside_onednn()) ++count;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace dew::test {

std::int64_t allocations() { return count; }

}  // namespace dew::test
