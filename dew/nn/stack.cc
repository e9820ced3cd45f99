#include "dew/base/error.h"
#include "dew/nn/nn.h"

namespace dew {

StackBuilder::StackBuilder(Program& program, std::string name, std::int64_t layers)
    : program_(program), body_(std::make_shared<Program>(std::move(name))), layers_(layers) {}

Value StackBuilder::body_input(std::string name, Value outside, Type type) {
  DEW_CHECK(outside.program == &program_, name + " is a value of another program");
  return body_->input(std::move(name), std::move(type), program_.info(outside).weight);
}

Value StackBuilder::carry(std::string name, Value outside) {
  DEW_CHECK(slices_.empty() && constants_.empty(), name + ": carries come first");
  carries_.push_back(outside);
  return body_input(std::move(name), outside, outside.type());
}

Value StackBuilder::slice(std::string name, Value outside) {
  DEW_CHECK(constants_.empty(), name + ": slices come before constants");
  DEW_CHECK(outside.type().rank() > 0 && outside.dim(0) == layers_,
            name + ": " + to_string(outside.type()));
  slices_.push_back(outside);
  const Dims& shape = outside.shape();
  return body_input(std::move(name), outside,
                    {outside.dtype(), Dims(shape.begin() + 1, shape.end())});
}

Value StackBuilder::constant(std::string name, Value outside) {
  constants_.push_back(outside);
  return body_input(std::move(name), outside, outside.type());
}

Scan StackBuilder::build(std::span<const Value> carries, std::span<const Value> stacked) {
  DEW_CHECK(carries.size() == carries_.size(), body_->name() + ": carries in and out differ");
  for (std::size_t i = 0; i < carries.size(); ++i)
    body_->output("carry" + std::to_string(i), carries[i]);
  for (std::size_t i = 0; i < stacked.size(); ++i)
    body_->output("stacked" + std::to_string(i), stacked[i]);
  return scan(body_, carries_, slices_, constants_, layers_);
}

// One constant a place in the period, repeated: the program's size follows the period and not the
// depth.
Value layer_pattern(Program& program, std::int64_t layers, std::span<const std::int64_t> pattern) {
  if (pattern.size() == 1)
    return constant(program, {DType::i32, {layers}}, static_cast<double>(pattern[0]));
  std::vector<Value> period;
  for (const std::int64_t value : pattern) {
    period.push_back(constant(program, {DType::i32, {1}}, static_cast<double>(value)));
  }
  const auto size = static_cast<std::int64_t>(pattern.size());
  const std::int64_t periods = (layers + size - 1) / size;
  const Value all =
      reshape(broadcast(concatenate(period, 0), {periods, size}, {1}), {periods * size});
  return periods * size == layers ? all : slice(all, {0}, {layers});
}

}  // namespace dew
