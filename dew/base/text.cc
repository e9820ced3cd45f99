#include "dew/base/text.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "dew/base/format.h"

namespace dew {

std::string plain_text(std::string_view text, char instead) {
  std::string plain(text.substr(0, kMostShown + 1));
  for (char& c : plain) {
    if (c < ' ' || c > '~') c = instead;
  }
  return shortened(std::move(plain));
}

std::string in_quotes(std::string_view name) { return format("'{}'", plain_text(name)); }

std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  text.resize(most);
  return text.append("...");
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
