// Counts the allocations of the test program. In a file of its own: inlined beside a test, the two
// halves of a pair look mismatched to the compiler.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "dew/data/data_test_support.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// The sanitizers bring their own operators; there, nothing is counted.
#ifndef DEW_SANITIZED
void* operator new(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace dew {

std::int64_t allocations_so_far() { return allocations; }

}  // namespace dew
