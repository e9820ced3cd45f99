// The program: whole-tensor computations in static single assignment form, append-only.
//
//   Program p("example");
//   Value x = p.input("x", {DType::f32, {8, 64}});
//   p.output("y", tanh(x) * 2.0);
//
// Values are small handles: a program and a number. Numbers follow the order of definition, so the
// order of values is a topological order. Passes build new programs; nothing is ever removed from
// one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dew/ir/op.h"

namespace dew {

class Program;

struct Value {
  Program* program = nullptr;
  int id = -1;

  bool valid() const { return program != nullptr; }
  const Type& type() const;
  const Dims& shape() const { return type().shape; }
  std::int64_t dim(std::int64_t d) const;  // negative counts from the end
  DType dtype() const { return type().dtype; }
  bool operator==(const Value&) const = default;
};

// Logical names of dimensions ("activation_batch", "mlp", ...); "" for one that is never split.
using AxisNames = std::vector<std::string>;

// What is known of a value beside its type. `like` and `hint` are numbers of values of the same
// program, -1 if none.
struct ValueInfo {
  Type type;
  int node = -1;               // defining node, -1 for an input
  int result = 0;              // which of its results
  bool weight = false;         // computed from parameters and state only
  bool data = false;           // depends on another kind of input; constants are neither
  std::vector<AxisNames> pin;  // at most one: placement that the model asks for
  // Numbers of values, -1 if none, of this program, or of the program named likes_of() if that is
  // set.
  int like = -1;  // takes that value's placement (total cotangent, parameter gradient, new state)
  int hint = -1;  // the same wish, only counted (one contribution to a cotangent)
  std::string name;  // of an input; of a value that a remat policy may save
  // In a program of one device: the atoms of the mesh over which devices hold different bits, in
  // the order in which memory holds their parts, outermost first.
  Dims shards = {};
  bool stacked = false;  // the first dimension is a stack's: memory holds it outside of the parts
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<int> operands;
  Attrs attrs;
  int first_result = 0, result_count = 1;
};

struct Output {
  std::string name;
  int value = -1;
};

class Program {
 public:
  explicit Program(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // The body of a backward scan: `like` and `hint` are numbers of values of the forward body of
  // this name. Empty: of itself.
  const std::string& likes_of() const { return likes_of_; }
  void set_likes_of(std::string body) { likes_of_ = std::move(body); }

  // `weight`: a parameter or state. Names of inputs, and of outputs, are unique.
  Value input(std::string name, Type type, bool weight = false);

  // Appends a node; result types are inferred (and so checked). All operands belong to this
  // program.
  std::vector<Value> add(const OpDef& op, std::span<const Value> operands, Attrs attrs);
  Value add1(const OpDef& op, std::initializer_list<Value> operands, Attrs attrs = NoAttrs{});

  void output(std::string name, Value value);

  // Annotations.
  void pin(Value value, AxisNames names);
  void set_like(Value value, int other);
  void set_hint(Value value, int other);
  void set_name(Value value, std::string name);
  void set_shards(Value value, Dims atoms, bool stacked);

  const std::vector<ValueInfo>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  const ValueInfo& info(Value value) const { return values_[static_cast<std::size_t>(value.id)]; }
  Value value(int id) { return {this, id}; }
  Value find_input(std::string_view name);  // invalid Value if there is none
  Value find_output(std::string_view name);

 private:
  ValueInfo& info_of(Value value);
  int new_value(ValueInfo info);

  std::string name_, likes_of_;
  std::vector<ValueInfo> values_;
  std::vector<Node> nodes_;
  std::vector<int> inputs_;
  std::vector<Output> outputs_;
};

// Text form (ir/print.cc, ir/parse.cc): print(parse(print(p))) == print(p).
std::string print(const Program& program);

// `ops` are the rows that names are looked up in (ops/ops.h has all of them). Errors name line and
// column.
Program parse(std::string_view text, std::span<const OpDef* const> ops);

// Whole-program checks beyond those of `add`: references, scan bodies, annotations, unique names.
// Throws internal errors.
void verify(const Program& program);

}  // namespace dew
