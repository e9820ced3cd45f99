// A loop over a body: the only op with a program inside.
#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ir/interpret.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

Type stacked(const Type& type, std::int64_t length) {
  Type result{type.dtype, {length}};
  result.shape.insert(result.shape.end(), type.shape.begin(), type.shape.end());
  return result;
}

const Type& type_of(const Program& body, int value) { return body.values()[slot(value)].type; }

void check_counts(const Checks& check, const ScanAttrs& scan, std::size_t operands) {
  if (scan.body == nullptr) check.refuse("SCA-1", "has no body");
  if (scan.length < 0 || scan.carries < 0 || scan.slices < 0)
    check.refuse("SCA-2", "counts must not be negative");
  if (scan.body->inputs().size() != operands || slot(scan.carries + scan.slices) > operands) {
    check.refuse(
        "SCA-3",
        format("body \"{}\" has {} inputs, the scan {} operands ({} carries, {} slices)",
               scan.body->name(), scan.body->inputs().size(), operands, scan.carries, scan.slices));
  }
  if (scan.body->outputs().size() < slot(scan.carries)) {
    check.refuse("SCA-4", format("body \"{}\" has {} outputs for {} carries", scan.body->name(),
                                 scan.body->outputs().size(), scan.carries));
  }
}

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("scan", "operands...", in);
  const auto& scan = check.attrs<ScanAttrs>(attrs);
  check_counts(check, scan, in.size());
  const Program& body = *scan.body;
  const std::size_t carries = slot(scan.carries), slices_end = slot(scan.carries + scan.slices);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Type& inner = type_of(body, body.inputs()[i]);
    const bool is_slice = i >= carries && i < slices_end;
    check.is("SCA-5", i, is_slice ? stacked(inner, scan.length) : inner);
  }
  std::vector<Type> results;
  for (std::size_t i = 0; i < body.outputs().size(); ++i) {
    const Type& inner = type_of(body, body.outputs()[i].value);
    if (i < carries && inner != in[i]) {
      check.refuse("SCA-6", format("carry {} is {} but leaves the body as {}", i, to_string(in[i]),
                                   to_string(inner)));
    }
    results.push_back(i < carries ? inner : stacked(inner, scan.length));
  }
  return results;
}

Array part(const Array& whole, std::size_t iteration) {
  Array result(Dims(whole.shape.begin() + 1, whole.shape.end()));
  const auto first =
      whole.data.begin() + static_cast<std::ptrdiff_t>(iteration * result.data.size());
  result.data.assign(first, first + static_cast<std::ptrdiff_t>(result.data.size()));
  return result;
}

void put(Array& whole, std::size_t iteration, const Array& value) {
  std::ranges::copy(
      value.data, whole.data.begin() + static_cast<std::ptrdiff_t>(iteration * value.data.size()));
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> in, Types types) {
  const auto& scan = std::get<ScanAttrs>(attrs);
  const std::size_t carries = slot(scan.carries), slices_end = slot(scan.carries + scan.slices);
  std::vector<Array> results(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carries));
  for (const Type& type : types.subspan(carries)) results.emplace_back(type.shape);
  for (std::size_t n = 0; n < slot(scan.length); ++n) {
    const std::size_t iteration = scan.reverse ? slot(scan.length) - 1 - n : n;
    std::vector<Array> inputs(results.begin(),
                              results.begin() + static_cast<std::ptrdiff_t>(carries));
    for (std::size_t i = carries; i < in.size(); ++i)
      inputs.push_back(i < slices_end ? part(in[i], iteration) : in[i]);
    const std::vector<Array> outputs = interpret(*scan.body, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (i < carries) {
        results[i] = outputs[i];
      } else {
        put(results[i], iteration, outputs[i]);
      }
    }
  }
  return results;
}

}  // namespace

// No factors and no vjp: sharding, partition and autodiff go into the body. So this row is not made
// by op_row.
constinit const OpDef scan_op = {.name = "scan", .infer = infer, .reference = reference};

Scan scan(std::shared_ptr<const Program> body, std::span<const Value> carries,
          std::span<const Value> slices, std::span<const Value> constants, std::int64_t length,
          bool reverse) {
  std::vector<Value> operands(carries.begin(), carries.end());
  operands.insert(operands.end(), slices.begin(), slices.end());
  operands.insert(operands.end(), constants.begin(), constants.end());
  if (operands.empty()) fail(ErrorCode::usage, "scan: OP-1 takes at least 1 operands, got 0");
  const ScanAttrs attrs{std::move(body), static_cast<std::int64_t>(carries.size()),
                        static_cast<std::int64_t>(slices.size()), length, reverse};
  const std::vector<Value> results = operands[0].program->add(scan_op, operands, attrs);
  const auto middle = results.begin() + static_cast<std::ptrdiff_t>(carries.size());
  return {{results.begin(), middle}, {middle, results.end()}};
}

}  // namespace dew
