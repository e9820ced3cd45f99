// The machine, and what tells one run from another.
#pragma once

#include <string>

namespace dew::cli {

// "AMD EPYC family 25 model 1 avx2": where it is the same, so are the bits of a run.
std::string processor_kind();

// 16 hexadecimal digits that no other run has.
std::string fresh_run_id();

}  // namespace dew::cli
