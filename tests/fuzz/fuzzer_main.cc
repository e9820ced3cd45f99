// The entry point that libFuzzer looks for.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dew::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
