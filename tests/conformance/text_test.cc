// The table is complete, and every sample survives the way through text.
#include <iostream>
#include <set>

#include "tests/conformance/by_op.h"
#include "tests/effort.h"

namespace dew {
namespace {

class PrintSeed : public testing::Environment {
  void SetUp() override { std::cout << "DEW_TEST_SEED=" << base_seed() << "\n"; }
};
const testing::Environment* const kPrintSeed = testing::AddGlobalTestEnvironment(new PrintSeed);

TEST(OpSamples, EveryOpHasOne) {
  std::multiset<std::string> sampled, known;
  for (const OpSample& row : op_samples()) sampled.insert(row.op->name);
  for (const OpDef* op : all_ops()) {
    if (!op->has(kCollective)) known.insert(op->name);
  }
  EXPECT_EQ(sampled, known);
}

class Text : public ByOp {};
DEW_FOR_EVERY_OP(Text, samples_and_template());

TEST_P(Text, PrintedAndParsedIsTheSame) {
  const std::vector<const OpDef*> ops = ops_and_template();
  for_samples(GetParam(), effort(20), {}, [&](const Sample& sample) {
    const std::string text = print(sample.program);
    const Program again = parse(text, ops);
    verify(again);
    EXPECT_EQ(print(again), text);
  });
}

}  // namespace
}  // namespace dew
