// One table of samples, one row an op, over which all conformance tests run: a random small program around the op, with
// inputs that suit it. A new op gets gradient, split, text and kernel tests from its row here.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "dew/ops/ops.h"

namespace dew {

// Operands of the op are the program's inputs, in order; its results are the program's outputs, in order.
struct Sample {
  Program program{"sample"};
  std::vector<Array> inputs;
  std::vector<int> graded_inputs;   // places of the inputs that have a gradient
  std::vector<int> graded_outputs;  // places of the outputs that may have a cotangent
};

// Makes inputs; rows of the table call it.
class SampleMaker {
 public:
  // `floats` is the type of the op's floats where it takes several. With `rounded`, inputs are exact in their type.
  SampleMaker(std::uint64_t seed, DType floats, bool rounded);

  // 1 to 8, sometimes 0; small, even and odd.
  std::int64_t size();
  Dims shape();  // rank 0 to 3
  Dims shape(int rank);
  std::int64_t integer(std::int64_t low, std::int64_t high);  // inclusive
  double real(double low, double high);
  bool chance(double probability);

  DType float_type() const { return floats_; }
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
  DType floats_;
  bool rounded_;
  double weights_ = 0.3;
  Sample sample_;
};

struct OpSample {
  const OpDef* op;
  void (*make)(SampleMaker&);
};

std::span<const OpSample> op_samples();

Sample make_sample(const OpSample& row, std::uint64_t seed, DType floats, bool rounded);

// The seed of this run: DEW_TEST_SEED, else 1. Printed by every test case through `trace`.
std::uint64_t base_seed();
std::uint64_t seed_of(const OpSample& row, int round);
std::string trace(const OpSample& row, int round, DType floats, const Sample& sample);

}  // namespace dew
