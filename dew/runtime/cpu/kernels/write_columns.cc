// Columns of an array replaced by others, in place where the planner has arranged that.
#include <algorithm>
#include <cstring>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;  // of the updates

// A piece owns a row and a range of features, the elements of a column, and writes tokens in order:
// of equal columns the last one stays.
class WriteColumns final : public Kernel {
 public:
  WriteColumns(const Step& step, const Strided& column)
      : column_(column),
        rows_(step.outputs[0].type.shape[0]),
        columns_(step.outputs[0].type.shape[1]),
        tokens_(step.inputs[1].type.shape[1]),
        features_(column.elements),
        size_(byte_size(column.dtype)),
        base_row_(step.inputs[0].strides[0]),
        base_column_(step.inputs[0].strides[1]),
        dense_(is_dense(step.inputs[0])) {
    const std::int64_t most = std::max<std::int64_t>(1, 64 / std::max<std::int64_t>(1, rows_));
    const std::int64_t parts =
        std::clamp<std::int64_t>(tokens_ * features_ / kPieceElements, 1, most);
    part_ = std::max<std::int64_t>(1, (features_ + parts - 1) / parts);
    parts_ = (features_ + part_ - 1) / part_;
    phases_ = {static_cast<int>(rows_ * parts_)};
    implementation_ = "copies";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    const std::int64_t row = piece / parts_, begin = piece % parts_ * part_;
    const std::int64_t count = std::min(part_, features_ - begin);
    const bool in_place = dense_ && args.operands[0] == args.operands[3];
    if (!in_place) copy_base(args, row, begin, count);
    const auto* const columns = reinterpret_cast<const std::int32_t*>(args.operands[1]);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::int64_t token = row * tokens_ + t, column = columns[token];
      if (column < 0 || column >= columns_) continue;
      std::memcpy(target(args, row, column, begin),
                  args.operands[2] + (token * features_ + begin) * size_, bytes(count));
    }
  }

 private:
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * size_);
  }

  std::byte* target(const KernelArgs& args, std::int64_t row, std::int64_t column,
                    std::int64_t feature) const {
    return args.operands[3] + ((row * columns_ + column) * features_ + feature) * size_;
  }

  void copy_base(const KernelArgs& args, std::int64_t row, std::int64_t begin,
                 std::int64_t count) const {
    for (std::int64_t c = 0; c < columns_; ++c) {
      const std::byte* from = args.operands[0] + (row * base_row_ + c * base_column_) * size_;
      std::byte* to = target(args, row, c, begin);
      Runs runs(column_, begin);
      for (std::int64_t left = count; left > 0;) {
        const std::int64_t n = std::min(left, runs.left());
        copy_run(from + runs.offset() * size_, to, n);
        to += n * size_;
        left -= n;
        runs.advance(n);
      }
    }
  }

  void copy_run(const std::byte* from, std::byte* to, std::int64_t n) const {
    if (column_.step() == 1) {
      std::memcpy(to, from, bytes(n));
      return;
    }
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(to + i * size_, from + i * column_.step() * size_, bytes(1));
  }

  Strided column_;  // the elements of a column of base
  std::int64_t rows_, columns_, tokens_, features_, size_;
  std::int64_t base_row_, base_column_;
  bool dense_;
  std::int64_t part_ = 1, parts_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_write_columns(const Step& step, std::string& why_not) {
  if (step.op != &write_columns_op) {
    why_not = "another op";
    return nullptr;
  }
  const View& base = step.inputs[0];
  const auto column = strided(Dims(base.type.shape.begin() + 2, base.type.shape.end()),
                              Dims(base.strides.begin() + 2, base.strides.end()), base.type.dtype);
  if (!column || !is_dense(step.inputs[1]) || !is_dense(step.inputs[2]) ||
      !is_dense(step.outputs[0])) {
    why_not = "columns, updates or the result have gaps, or base has too many dimensions";
    return nullptr;
  }
  return std::make_unique<WriteColumns>(step, *column);
}

}  // namespace dew::cpu
