// The one exception type of the library and the check for our own bugs.
#pragma once

#include <stdexcept>
#include <string>

namespace dew {

// What kind of thing went wrong. The values are the exit statuses of the command line and never
// change.
enum class ErrorCode {
  internal = 1,        // a bug of ours
  usage = 2,           // command line, config, or an argument of the library
  layout_refused = 3,  // a mesh or layout that cannot work
  data = 4,            // token files, text, tokenizers
  checkpoint = 5,      // checkpoint and model files, resume refusals
  non_finite = 6,      // the run stopped because its numbers are not finite
  process = 7,         // a process of the job or its communication failed
};

// Something a user or the world can cause. `what()` is one line: what was asked, the values, what
// would work.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const noexcept { return code_; }
  // A second line that tells what to try; empty if there is nothing to add.
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

[[noreturn]] void fail(ErrorCode code, const std::string& message, std::string hint = {});

// Throws ErrorCode::internal with file and line; called by DEW_CHECK only.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace dew

// A condition that only a bug of ours can break; `message` is evaluated on failure only.
#define DEW_CHECK(condition, message)                                                 \
  do {                                                                                \
    if (!(condition)) ::dew::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
