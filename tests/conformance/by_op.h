// Test cases named after ops: DEW_FOR_EVERY_OP(Suite, rows) runs each TEST_P of the suite once a
// row.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "tests/conformance/op_samples.h"

namespace dew {

inline void PrintTo(const OpSample& row, std::ostream* out) { *out << row.op->name; }

class ByOp : public testing::TestWithParam<OpSample> {};

inline std::string op_name(const testing::TestParamInfo<OpSample>& info) {
  return info.param.op->name;
}

}  // namespace dew

#define DEW_FOR_EVERY_OP(suite, rows) \
  INSTANTIATE_TEST_SUITE_P(Ops, suite, testing::ValuesIn(rows), op_name)

namespace dew {

// Calls check(sample) for `rounds` samples of the row in f32, then in bf16. From round `long_from`
// on they have a long dimension.
template <class Check>
void for_samples(const OpSample& row, int rounds, SampleOptions options, Check check,
                 int long_from = 1 << 20) {
  for (DType floats : {DType::f32, DType::bf16}) {
    options.floats = floats;
    for (int round = 0; round < rounds; ++round) {
      options.long_dim = round >= long_from;
      const Sample sample = make_sample(row, seed_of(row, round), options);
      SCOPED_TRACE(trace(row, round, floats, sample));
      check(sample);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace dew
