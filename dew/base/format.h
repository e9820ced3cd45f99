// String formatting for .cc files (fmt); never included by a header that is installed.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dew {

using fmt::format;

}  // namespace dew
