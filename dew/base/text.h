// Text from outside in our messages.
#pragma once

#include <string>
#include <string_view>

namespace dew {

// A name from a file as a message may show it: quoted, on one line, in ASCII, of bearable length.
std::string in_quotes(std::string_view name);

}  // namespace dew
