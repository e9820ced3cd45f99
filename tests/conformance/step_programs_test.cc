// The programs of whole training steps do not depend on what compiled dew: an expression whose
// operands both add to a program adds them in the order that the compiler likes. CI runs this with
// GCC and with clang. A change of models, gradients or optimizers rewrites the file:
// DEW_REWRITE_PROGRAMS=1.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dew/autodiff/simplify.h"
#include "dew/base/digest.h"
#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/ir/rewrite.h"
#include "tests/training/models.h"

namespace dew {
namespace {

const Path kFile = "tests/data/step_programs.txt";

std::string line(const std::string& title, const Program& program) {
  const std::string text = print(without_dead_code(simplify(program)));
  const std::uint64_t digest = digest_of(std::as_bytes(std::span(text)));
  return format("{} {}: {} operations, text {}\n", title, program.name(), program.nodes().size(),
                digest_text(digest));
}

TEST(StepPrograms, AreTheSameFromEveryCompiler) {
  std::string found;
  for (const test::Case& c : test::cases()) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const Module module = training_module(test::objective_of(c), c.optimizer, c.shape, compute);
      const std::string title = format("{} {}", c.name, name(compute));
      for (const Program& program : module.programs) found += line(title, program);
    }
  }
  if (std::getenv("DEW_REWRITE_PROGRAMS") != nullptr)
    write_file_atomic(kFile, found, ErrorCode::internal);
  EXPECT_EQ(found, read_file(kFile, ErrorCode::internal, 1 << 20)) << kFile;
}

}  // namespace
}  // namespace dew
