// The table is complete, and every sample survives the way through text.
#include <set>

#include "tests/conformance/by_op.h"

namespace dew {
namespace {

TEST(OpSamples, EveryOpHasOne) {
  std::multiset<std::string> sampled, known;
  for (const OpSample& row : op_samples()) sampled.insert(row.op->name);
  for (const OpDef* op : all_ops()) known.insert(op->name);
  EXPECT_EQ(sampled, known);
}

class Text : public ByOp {};
DEW_FOR_EVERY_OP(Text);

TEST_P(Text, PrintedAndParsedIsTheSame) {
  for_samples(GetParam(), 20, true, [](const Sample& sample) {
    const std::string text = print(sample.program);
    const Program again = parse(text, all_ops());
    verify(again);
    EXPECT_EQ(print(again), text);
  });
}

}  // namespace
}  // namespace dew
