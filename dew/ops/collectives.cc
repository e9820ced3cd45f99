// What devices do together. These rows say types alone: their meaning needs all members of a group,
// and is written down where devices are (the tests' lockstep interpreter, the plan, the runtimes).
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

const GroupAttrs& group_of(const Checks& check, const Attrs& attrs, std::size_t dims) {
  const auto& group = check.attrs<GroupAttrs>(attrs);
  if (group.atoms.empty() || group.members < 1)
    check.refuse("COL-1", "a group has atoms and members");
  if (group.dims.size() != dims) check.refuse("COL-2", format("dims must be {} long", dims));
  return group;
}

std::int64_t part(const Checks& check, const Type& x, std::int64_t dim, std::int64_t members) {
  const std::int64_t size = x.shape[slot(dim)];
  if (size % members != 0)
    check.refuse("COL-3", format("{} members do not divide dimension {}", members, dim));
  return size / members;
}

std::vector<Type> infer_same(const Attrs& attrs, Types in) {
  const Checks check("all_reduce", "x", in);
  group_of(check, attrs, 0);
  return {in[0]};
}

std::vector<Type> infer_gather(const Attrs& attrs, Types in) {
  const Checks check("all_gather", "x", in);
  const GroupAttrs& group = group_of(check, attrs, 1);
  check.are_dims("COL-4", group.dims, 0);
  Type out = in[0];
  out.shape[slot(group.dims[0])] *= group.members;
  return {out};
}

std::vector<Type> infer_part(const Attrs& attrs, Types in) {
  const Checks check("own_part", "x", in);
  const GroupAttrs& group = group_of(check, attrs, 1);
  check.are_dims("COL-4", group.dims, 0);
  Type out = in[0];
  out.shape[slot(group.dims[0])] = part(check, in[0], group.dims[0], group.members);
  return {out};
}

std::vector<Type> infer_all_to_all(const Attrs& attrs, Types in) {
  const Checks check("all_to_all", "x", in);
  const GroupAttrs& group = group_of(check, attrs, 2);
  check.are_dims("COL-4", group.dims, 0);
  Type out = in[0];
  out.shape[slot(group.dims[0])] *= group.members;
  out.shape[slot(group.dims[1])] = part(check, in[0], group.dims[1], group.members);
  return {out};
}

std::vector<Type> infer_permute(const Attrs& attrs, Types in) {
  const Checks check("permute", "x", in);
  group_of(check, attrs, 0);
  return {in[0]};
}

std::vector<Type> infer_index(const Attrs& attrs, Types in) {
  const Checks check("device_index", "", in);
  group_of(check, attrs, 0);
  return {{DType::i32, {}}};
}

std::vector<Array> reference(const Attrs&, std::span<const Array>, Types) {
  fail(ErrorCode::internal, "a collective has no meaning on one device alone");
}

FactorRule factors(const Attrs&, Types, Types) {
  fail(ErrorCode::internal, "a program with collectives is partitioned already");
}

consteval OpDef collective(const char* name, std::vector<Type> (*infer)(const Attrs&, Types),
                           std::uint32_t traits = 0) {
  return op_row({.name = name,
                 .infer = infer,
                 .factors = factors,
                 .reference = reference,
                 .traits = kCollective | traits});
}

}  // namespace

constinit const OpDef all_reduce_op = collective("all_reduce", infer_same);
constinit const OpDef all_gather_op = collective("all_gather", infer_gather, kView);
constinit const OpDef reduce_scatter_op = collective("reduce_scatter", infer_part);
constinit const OpDef all_to_all_op = collective("all_to_all", infer_all_to_all, kView);
constinit const OpDef permute_op = collective("permute", infer_permute, kView);
constinit const OpDef own_part_op = collective("own_part", infer_part, kView);
constinit const OpDef device_index_op = collective("device_index", infer_index);

Value all_reduce(Value x, GroupAttrs group) {
  return x.program->add1(all_reduce_op, {x}, std::move(group));
}
Value all_gather(Value x, GroupAttrs group) {
  return x.program->add1(all_gather_op, {x}, std::move(group));
}
Value reduce_scatter(Value x, GroupAttrs group) {
  return x.program->add1(reduce_scatter_op, {x}, std::move(group));
}
Value all_to_all(Value x, GroupAttrs group) {
  return x.program->add1(all_to_all_op, {x}, std::move(group));
}
Value permute(Value x, GroupAttrs group) {
  return x.program->add1(permute_op, {x}, std::move(group));
}
Value own_part(Value x, GroupAttrs group) {
  return x.program->add1(own_part_op, {x}, std::move(group));
}
Value device_index(Program& program, GroupAttrs group) {
  return program.add1(device_index_op, {}, std::move(group));
}

}  // namespace dew
