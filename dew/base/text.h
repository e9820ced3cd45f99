// Text from outside in our messages.
#pragma once

#include <string>
#include <string_view>

namespace dew {

constexpr std::size_t kMostShown = 160;  // bytes of a text from outside in one message

// A text from outside as a message may show it: on one line, in ASCII with `instead` of what is
// not, of bearable length.
std::string plain_text(std::string_view text, char instead = '?');

// The same of a name, quoted.
std::string in_quotes(std::string_view name);

// A text of bearable length: its first `most` bytes and dots where there are more.
std::string shortened(std::string text, std::size_t most = kMostShown);

// A number with three digits and its scale: "0.31", "35.2", "1.25k", "12.3M".
std::string short_number(double value);

}  // namespace dew
