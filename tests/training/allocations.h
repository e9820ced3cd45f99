// Counts what the test program allocates outside of oneDNN.
#pragma once

#include <cstdint>

namespace dew::test {

std::int64_t allocations();

}  // namespace dew::test
