#include "dew/base/text.h"

namespace dew {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kMost = 160;
  std::string text = "'";
  for (const char c : name.substr(0, kMost)) text += c < ' ' || c > '~' ? '?' : c;
  return text + (name.size() > kMost ? "...'" : "'");
}

}  // namespace dew
