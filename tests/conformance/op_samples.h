// One table of samples, one row an op, over which all conformance tests run: a random small program
// around the op, with inputs that suit it. A new op gets gradient, split, text and kernel tests
// from its row here.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "dew/ops/ops.h"

namespace dew {

// Operands of the op are the program's inputs, in order; its results are the program's outputs, in
// order.
struct Sample {
  Program program{"sample"};
  std::vector<Array> inputs;
  std::vector<int> graded_inputs;   // places of the inputs that have a gradient
  std::vector<int> graded_outputs;  // places of the outputs that may have a cotangent
};

struct SampleOptions {
  DType floats = DType::f32;  // type of the op's floats where it takes several
  bool rounded = true;        // inputs are exact in their type
  bool long_dim = false;      // one dimension has 9 to 70 elements
  bool whole = false;         // floats are integers, so that sums have no rounding
  Dims sizes = {};            // that size() chooses from; empty: as it says
};

// Makes inputs; rows of the table call it.
class SampleMaker {
 public:
  SampleMaker(std::uint64_t seed, SampleOptions options);

  // 1 to 8, sometimes 0, once 9 to 70 if asked for; even and odd.
  std::int64_t size();
  Dims shape();  // rank 0 to 3
  Dims shape(int rank);
  std::int64_t integer(std::int64_t low, std::int64_t high);  // inclusive
  double real(double low, double high);
  bool chance(double probability);

  DType float_type() const { return options_.floats; }
  Program& program() { return sample_.program; }

  // How many of the inputs with a gradient are weights; 0.3 unless set.
  void weights(double probability) { weights_ = probability; }

  // Inputs. `values` have a gradient, `constants` have none; both are of type `floats` unless told.
  Value values(Dims shape, double low = -2, double high = 2);
  Value values_f32(Dims shape, double low = -2, double high = 2);
  // No two alike and, without offset, none an integer, with gaps: for ops with kinks.
  Value distinct(Dims shape, double offset = 0);
  Value constants_f32(Dims shape, double low, double high);
  Value integers(Dims shape, std::int64_t low, std::int64_t high, DType dtype = DType::i32);
  Value preds(Dims shape);
  Value input(Type type, std::vector<double> data, bool graded);

  // Results of the op, in order.
  void result(Value value, bool graded = true);

  Sample take() { return std::move(sample_); }

 private:
  Value random(Type type, double low, double high, bool graded);

  std::mt19937_64 engine_;
  SampleOptions options_;
  double weights_ = 0.3;
  Sample sample_;
};

struct OpSample {
  const OpDef* op;
  void (*make)(SampleMaker&);
};

std::span<const OpSample> op_samples();

// With the template op (template_op.h), which has no kernel and is not in all_ops().
std::vector<OpSample> samples_and_template();
std::vector<const OpDef*> ops_and_template();

Sample make_sample(const OpSample& row, std::uint64_t seed, SampleOptions options);

// The seed of this run: DEW_TEST_SEED, else 1. Printed by every test case through `trace`.
std::uint64_t base_seed();
std::uint64_t seed_of(const OpSample& row, int round);
std::string trace(const OpSample& row, int round, DType floats, const Sample& sample);

}  // namespace dew
