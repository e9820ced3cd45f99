#include "dew/runtime/processes.h"

#include <algorithm>
#include <optional>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

class Alone final : public Processes {
 public:
  int rank() const override { return 0; }
  int count() const override { return 1; }
  std::string name(int) const override { return "rank 0"; }
  std::vector<std::string> exchange(std::string_view mine, const char*) override {
    return {std::string(mine)};
  }
  std::int64_t largest(std::int64_t mine, const char*) override { return mine; }
};

// "CODE LENGTH MESSAGE HINT", the message of that length. Empty text: all went well.
std::string to_text(const Error& e) {
  const std::string message = e.what();
  return format("{} {} {}{}", static_cast<int>(e.code()), message.size(), message, e.hint());
}

Error from_text(const std::string& text) {
  std::size_t used = 0;
  const int code = std::stoi(text, &used);
  const std::string rest = text.substr(used + 1);
  const auto length = static_cast<std::size_t>(std::stoul(rest, &used));
  return {static_cast<ErrorCode>(code), rest.substr(used + 1, length),
          rest.substr(used + 1 + length)};
}

}  // namespace

Processes& one_process() {
  static Alone alone;
  return alone;
}

void do_together(Processes& processes, const char* what, const std::function<void()>& work) {
  if (processes.count() == 1) return work();
  std::string mine;
  try {
    work();
  } catch (const Error& e) {
    // What goes wrong between processes is known to all of them, or they are gone.
    if (e.code() == ErrorCode::process) throw;
    mine = to_text(e);
  } catch (const std::exception& e) {
    mine = to_text({ErrorCode::internal, e.what()});
  }
  const std::vector<std::string> all = processes.exchange(mine, what);
  const auto failed = std::ranges::find_if(all, [](const std::string& t) { return !t.empty(); });
  if (failed == all.end()) return;
  const Error error = from_text(*failed);
  if (std::ranges::all_of(all, [&](const std::string& t) { return t == *failed; }))
    throw from_text(*failed);
  fail(ErrorCode::process,
       format("{}: {}", processes.name(static_cast<int>(failed - all.begin())), error.what()),
       error.hint());
}

std::string first_says(Processes& processes, const char* what,
                       const std::function<std::string()>& work) {
  if (processes.count() == 1) return work();
  std::string text;  // "+" and the result, or "-" and the error
  if (processes.first()) {
    try {
      text = "+" + work();
    } catch (const Error& e) {
      text = "-" + to_text(e);
    }
  }
  const std::string first = processes.exchange(text, what).front();
  if (first.front() == '-') throw from_text(first.substr(1));
  return first.substr(1);
}

void first_does(Processes& processes, const char* what, const std::function<void()>& work) {
  first_says(processes, what, [&] {
    work();
    return std::string();
  });
}

}  // namespace dew
