#include "dew/runtime/backend.h"

#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew {

TooLarge::TooLarge(double kept_bytes, double call_bytes, double there)
    : Error(ErrorCode::usage,
            format("{}B for what outlives a call (state, batch) and {}B for values are needed, "
                   "this machine has {}B",
                   short_number(kept_bytes), short_number(call_bytes), short_number(there)),
            "fewer rows, shorter ones or a smaller model need less"),
      kept(kept_bytes),
      call(call_bytes),
      memory(there) {}

}  // namespace dew
