#include "dew/partition/account.h"

#include <memory>

#include "dew/base/error.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class StandIn {
 public:
  explicit StandIn(const Program& from)
      : from_(from), to_(from.name()), values_(from.values().size()) {}

  Program run() {
    for (int id = 0; id < static_cast<int>(values_.size()); ++id) {
      const ValueInfo& info = from_.values()[at(id)];
      if (info.node < 0) {
        values_[at(id)] = to_.input(info.name, info.type, info.weight);
      } else if (info.result == 0) {
        node(from_.nodes()[at(info.node)]);
      }
    }
    for (const Output& o : from_.outputs()) to_.output(o.name, values_[at(o.value)]);
    return std::move(to_);
  }

 private:
  void node(const Node& n) {
    if (n.op->has(kCollective)) {
      values_[at(n.first_result)] = collective(n);
      return;
    }
    Attrs attrs = n.attrs;
    if (auto* scan = std::get_if<ScanAttrs>(&attrs))
      scan->body = std::make_shared<const Program>(StandIn(*scan->body).run());
    if (auto* head = std::get_if<HeadAttrs>(&attrs)) {
      head->atoms.clear();
      head->members = 1;
    }
    std::vector<Value> operands;
    for (const int id : n.operands) operands.push_back(values_[at(id)]);
    const std::vector<Value> results = to_.add(*n.op, operands, std::move(attrs));
    for (std::size_t i = 0; i < results.size(); ++i) values_[at(n.first_result) + i] = results[i];
  }

  Value collective(const Node& n) {
    const auto& group = std::get<GroupAttrs>(n.attrs);
    if (n.op == &device_index_op) return constant(to_, {DType::i32, {}}, 0);
    const Value x = values_[at(n.operands[0])];
    if (n.op == &all_reduce_op) return x;  // in place
    if (n.op == &permute_op) return copy(x);
    if (n.op == &own_part_op) return part(x, group.dims[0], group.members);
    if (n.op == &reduce_scatter_op) return copy(part(x, group.dims[0], group.members));
    const std::vector<Value> members(at(group.members), x);
    const Value gathered = concatenate(members, group.dims[0]);
    return n.op == &all_gather_op ? gathered : copy(part(gathered, group.dims[1], group.members));
  }

  static Value copy(Value x) { return neg(x); }

  static Value part(Value x, std::int64_t dim, std::int64_t parts) {
    Dims limit = x.shape();
    limit[at(dim)] /= parts;
    return slice(x, Dims(limit.size(), 0), limit);
  }

  const Program& from_;
  Program to_;
  std::vector<Value> values_;
};

}  // namespace

Program memory_stand_in(const Program& device_program) { return StandIn(device_program).run(); }

}  // namespace dew
