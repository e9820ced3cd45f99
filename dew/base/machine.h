// The machine that this process runs on.
#pragma once

namespace dew {

// Bytes that this process may have: all of the machine's, or what its control group allows.
double memory_bytes();

}  // namespace dew
