#include "dew/base/error.h"

#include "dew/base/format.h"

namespace dew {

void fail(ErrorCode code, const std::string& message, std::string hint) {
  throw Error(code, message, std::move(hint));
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(ErrorCode::internal,
              format("{}:{}: check failed: {}: {}", file, line, condition, message));
}

}  // namespace dew
