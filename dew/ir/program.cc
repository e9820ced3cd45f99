#include "dew/ir/program.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {

const Type& Value::type() const { return program->info(*this).type; }

std::int64_t Value::dim(std::int64_t d) const {
  const Dims& s = shape();
  const auto rank = static_cast<std::int64_t>(s.size());
  DEW_CHECK(d >= -rank && d < rank, format("dimension {} of {}", d, to_string(type())));
  return s[static_cast<std::size_t>(d < 0 ? d + rank : d)];
}

int Program::new_value(ValueInfo info) {
  values_.push_back(std::move(info));
  return static_cast<int>(values_.size()) - 1;
}

ValueInfo& Program::info_of(Value value) {
  DEW_CHECK(value.program == this, "a value of another program");
  return values_[static_cast<std::size_t>(value.id)];
}

Value Program::input(std::string name, Type type, bool weight) {
  DEW_CHECK(!find_input(name).valid(), format("{}: input {} twice", name_, name));
  ValueInfo info;
  info.type = std::move(type);
  info.weight = weight;
  info.data = !weight;
  info.name = std::move(name);
  const int id = new_value(std::move(info));
  inputs_.push_back(id);
  return {this, id};
}

std::vector<Value> Program::add(const OpDef& op, std::span<const Value> operands, Attrs attrs) {
  Node node{.op = &op, .operands = {}, .attrs = std::move(attrs)};
  std::vector<Type> types;
  bool any_weight = false, any_data = false;
  for (const Value& v : operands) {
    const ValueInfo& info = info_of(v);
    node.operands.push_back(v.id);
    types.push_back(info.type);
    any_weight = any_weight || info.weight;
    any_data = any_data || info.data;
  }
  std::vector<Type> results = op.infer(node.attrs, types);
  node.first_result = static_cast<int>(values_.size());
  node.result_count = static_cast<int>(results.size());
  std::vector<Value> out;
  for (std::size_t i = 0; i < results.size(); ++i) {
    ValueInfo info;
    info.type = std::move(results[i]);
    info.node = static_cast<int>(nodes_.size());
    info.result = static_cast<int>(i);
    info.weight = any_weight && !any_data;
    info.data = any_data;
    out.push_back({this, new_value(std::move(info))});
  }
  nodes_.push_back(std::move(node));
  return out;
}

Value Program::add1(const OpDef& op, std::initializer_list<Value> operands, Attrs attrs) {
  return add(op, std::span<const Value>(operands.begin(), operands.size()), std::move(attrs))
      .front();
}

void Program::output(std::string name, Value value) {
  DEW_CHECK(!find_output(name).valid(), format("{}: output {} twice", name_, name));
  DEW_CHECK(value.program == this,
            format("{}: output {} is a value of another program", name_, name));
  outputs_.push_back({std::move(name), value.id});
}

void Program::pin(Value value, AxisNames names) {
  ValueInfo& info = info_of(value);
  DEW_CHECK(names.size() == info.type.shape.size(),
            format("pin of {} names on {}", names.size(), to_string(info.type)));
  info.pin = {std::move(names)};
}

void Program::set_like(Value value, int other) { info_of(value).like = other; }

void Program::set_hint(Value value, int other) { info_of(value).hint = other; }

void Program::set_name(Value value, std::string name) { info_of(value).name = std::move(name); }

void Program::set_shards(Value value, Dims atoms, bool stacked) {
  ValueInfo& info = info_of(value);
  info.shards = std::move(atoms);
  info.stacked = stacked;
}

Value Program::find_input(std::string_view name) {
  for (const int id : inputs_) {
    if (values_[static_cast<std::size_t>(id)].name == name) return {this, id};
  }
  return {};
}

Value Program::find_output(std::string_view name) {
  const auto it = std::ranges::find(outputs_, name, &Output::name);
  return it == outputs_.end() ? Value{} : Value{this, it->value};
}

}  // namespace dew
