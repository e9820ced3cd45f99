#include "dew/train/state.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/nearest.h"

namespace dew {

const Stepper::Array& ArrayViews::at(std::string_view name) const {
  const auto found = std::ranges::find(arrays_, name, &Stepper::Array::name);
  if (found != arrays_.end()) return *found;
  const std::vector<std::string_view> names = [&] {
    std::vector<std::string_view> out;
    for (const Stepper::Array& a : arrays_) out.push_back(a.name);
    return out;
  }();
  fail(ErrorCode::usage, format("there is no array {}", in_quotes(name)),
       names.empty() ? "" : format("the nearest is {}", in_quotes(nearest(name, names))));
}

}  // namespace dew
