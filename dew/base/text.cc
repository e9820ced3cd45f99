#include "dew/base/text.h"

#include <cmath>
#include <iterator>

#include "dew/base/format.h"

namespace dew {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kMost = 160;
  std::string text = "'";
  for (const char c : name.substr(0, kMost)) text += c < ' ' || c > '~' ? '?' : c;
  return text + (name.size() > kMost ? "...'" : "'");
}

std::string short_number(double value) {
  constexpr const char* kScales[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t scale = 0;
  while (std::abs(value) >= 999.5 && scale + 1 < std::size(kScales)) {
    value /= 1000;
    ++scale;
  }
  const int digits = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return format("{:.{}f}{}", value, digits, kScales[scale]);
}

}  // namespace dew
