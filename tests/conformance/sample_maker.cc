#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "dew/base/format.h"
#include "dew/base/rng.h"
#include "tests/conformance/op_samples.h"

namespace dew {

SampleMaker::SampleMaker(std::uint64_t seed, SampleOptions options)
    : engine_(seed), options_(options) {}

std::int64_t SampleMaker::size() {
  if (!options_.sizes.empty())
    return options_.sizes[static_cast<std::size_t>(
        integer(0, static_cast<std::int64_t>(options_.sizes.size()) - 1))];
  if (options_.long_dim && chance(0.5)) {
    options_.long_dim = false;
    return integer(9, 70);
  }
  return chance(0.04) ? 0 : integer(1, 8);
}

Dims SampleMaker::shape() { return shape(static_cast<int>(integer(0, 3))); }

Dims SampleMaker::shape(int rank) {
  Dims sizes;
  for (int i = 0; i < rank; ++i) sizes.push_back(size());
  return sizes;
}

std::int64_t SampleMaker::integer(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
}

double SampleMaker::real(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(engine_);
}

bool SampleMaker::chance(double probability) { return real(0.0, 1.0) < probability; }

namespace {

double in_type(DType dtype, double x) {
  if (dtype == DType::f32) return static_cast<float>(x);
  if (dtype == DType::bf16) return static_cast<float>(bf16(static_cast<float>(x)));
  return x;
}

}  // namespace

Value SampleMaker::input(Type type, std::vector<double> data, bool graded) {
  Array array(type.shape);
  array.data = std::move(data);
  if (options_.rounded) {
    for (double& x : array.data) x = in_type(type.dtype, x);
  }
  const auto place = static_cast<int>(sample_.inputs.size());
  if (graded) sample_.graded_inputs.push_back(place);
  sample_.inputs.push_back(std::move(array));
  const bool weight = graded && chance(weights_);
  return program().input(format("x{}", place), std::move(type), weight);
}

Value SampleMaker::random(Type type, double low, double high, bool graded) {
  std::vector<double> data(static_cast<std::size_t>(type.elements()));
  for (double& x : data) x = options_.whole ? std::ceil(real(low, high)) : real(low, high);
  return input(std::move(type), std::move(data), graded);
}

Value SampleMaker::values(Dims shape, double low, double high) {
  return random({options_.floats, std::move(shape)}, low, high, true);
}

Value SampleMaker::values_f32(Dims shape, double low, double high) {
  return random({DType::f32, std::move(shape)}, low, high, true);
}

Value SampleMaker::constants_f32(Dims shape, double low, double high) {
  return random({DType::f32, std::move(shape)}, low, high, false);
}

// Odd multiples of 0.035: no integer is nearer than 0.005.
Value SampleMaker::distinct(Dims shape, double offset) {
  const Type type{options_.floats, std::move(shape)};
  std::vector<double> data(static_cast<std::size_t>(type.elements()));
  std::iota(data.begin(), data.end(), -static_cast<double>(data.size() / 2));
  std::ranges::shuffle(data, engine_);
  for (double& x : data) x = 0.07 * (x + 0.5) + offset;
  return input(type, std::move(data), true);
}

Value SampleMaker::integers(Dims shape, std::int64_t low, std::int64_t high, DType dtype) {
  const Type type{dtype, std::move(shape)};
  std::vector<double> data(static_cast<std::size_t>(type.elements()));
  for (double& x : data) x = static_cast<double>(integer(low, high));
  return input(type, std::move(data), false);
}

Value SampleMaker::preds(Dims shape) { return integers(std::move(shape), 0, 1, DType::pred); }

void SampleMaker::result(Value value, bool graded) {
  const auto place = static_cast<int>(program().outputs().size());
  if (graded && is_float(value.dtype())) sample_.graded_outputs.push_back(place);
  program().output(format("y{}", place), value);
}

Sample make_sample(const OpSample& row, std::uint64_t seed, SampleOptions options) {
  SampleMaker maker(seed, options);
  row.make(maker);
  return maker.take();
}

std::uint64_t base_seed() {
  const char* text = std::getenv("DEW_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

std::uint64_t seed_of(const OpSample& row, int round) {
  const RandomKey key =
      fold(fold(key_from_seed(base_seed()), row.op->name), static_cast<std::uint32_t>(round));
  return (std::uint64_t{key.hi} << 32) | key.lo;
}

std::string trace(const OpSample& row, int round, DType floats, const Sample& sample) {
  return format("{} in {}, round {}, DEW_TEST_SEED={}\n{}", row.op->name, name(floats), round,
                base_seed(), print(sample.program));
}

}  // namespace dew
