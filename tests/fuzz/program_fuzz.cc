#include "dew/ir/program.h"
#include "dew/ops/ops.h"
#include "tests/fuzz/fuzz.h"

void dew::fuzz::run(std::string_view input) {
  const auto read = [](std::string_view text) { return parse(text, all_ops()); };
  const auto program = parsed(ErrorCode::usage, [&] { return read(input); });
  if (!program) return;
  parsed_again([&] {
    verify(*program);
    return true;
  });
  const std::string text = print(*program);
  require(print(parsed_again([&] { return read(text); })) == text,
          "a program prints in another way the second time");
}
