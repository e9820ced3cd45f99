// Rows of a table by number, and sums into rows.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/gather.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

template <class Kind>
void AddInto(const std::byte* from, float* to, std::size_t n) {
  const auto* const p = reinterpret_cast<const typename Kind::T*>(from);
  ForRow(n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF sum = hn::Add(part.template Load<Bits32>(to + i), part.template Load<Kind>(p + i));
    part.template Store<Bits32>(sum, to + i);
  });
}

using Adder = void (*)(const std::byte* from, float* to, std::size_t n);

Adder FindAdder(DType dtype) { return dtype == DType::bf16 ? AddInto<Brain16> : AddInto<Bits32>; }

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {
namespace {

HWY_EXPORT(FindAdder);
using Adder = void (*)(const std::byte* from, float* to, std::size_t n);

constexpr std::int64_t kPieceElements = 16 * 1024;
constexpr std::int64_t kIds = 256;  // ids that are read at once

// The ids [begin, begin + n) of any strides, in `scratch` or in place.
const std::int32_t* read_ids(const Strided& s, const std::byte* base, std::int64_t begin,
                             std::int64_t n, std::byte* scratch) {
  const auto count = static_cast<std::size_t>(n);
  return reinterpret_cast<const std::int32_t*>(
      read_range(range_io(), s, base, begin, count, reinterpret_cast<float*>(scratch)));
}

class GatherRows final : public Kernel {
 public:
  GatherRows(const View& table, const Strided& ids) : ids_(ids), rows_(table.type.shape[0]) {
    size_ = byte_size(table.type.dtype);
    row_bytes_ = static_cast<std::size_t>(table.type.shape[1] * size_);
    stride_ = table.strides[0] * size_;
    pieces_ = cut_pieces(
        ids.elements,
        std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, table.type.shape[1])),
        1);
    phases_ = {pieces_.count};
    worker_scratch_ = kIds * sizeof(std::int32_t);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    if (row_bytes_ == 0) return;
    const std::int64_t end = std::min((piece + 1) * pieces_.size, ids_.elements);
    std::byte* to = args.operands[2] + static_cast<std::size_t>(piece * pieces_.size) * row_bytes_;
    for (std::int64_t at = piece * pieces_.size; at < end; at += kIds) {
      const std::int64_t n = std::min(kIds, end - at);
      const std::int32_t* ids = read_ids(ids_, args.operands[1], at, n, args.worker);
      for (std::int64_t i = 0; i < n; ++i, to += row_bytes_) {
        const bool inside = ids[i] >= 0 && ids[i] < rows_;
        if (inside)
          std::memcpy(to, args.operands[0] + ids[i] * stride_, row_bytes_);
        else
          std::memset(to, 0, row_bytes_);
      }
    }
  }

 private:
  Strided ids_;
  std::int64_t rows_, size_ = 0, stride_ = 0;
  std::size_t row_bytes_ = 0;
  Pieces pieces_;
};

// A piece owns the rows of some ids (those that are equal modulo a power of two) and a range of
// columns, and adds updates in the order of tokens: so sums do not depend on who runs what.
class ScatterAddRows final : public Kernel {
 public:
  ScatterAddRows(const Step& step, const Strided& base, const Strided& ids, const Strided& updates)
      : base_(base),
        ids_(ids),
        updates_(updates),
        rows_(step.outputs[0].type.shape[0]),
        e_(step.outputs[0].type.shape[1]) {
    const View &from = step.inputs[0], &to = step.outputs[0];
    const bool in_place = from.buffer == to.buffer && from.offset == to.offset &&
                          from.strides == to.strides && from.loop_stride == to.loop_stride;
    copy_phases_ = in_place ? 0 : 1;
    adder_ = HWY_DYNAMIC_DISPATCH(FindAdder)(updates.dense() ? updates.dtype : DType::f32);
    const std::int64_t column_pieces = std::max<std::int64_t>(1, e_ / kColumns);
    columns_ = (e_ + column_pieces - 1) / column_pieces;
    const std::int64_t wanted =
        std::clamp<std::int64_t>(updates.elements / kPieceElements, 1, kMaxPieces);
    while (classes_ * 2 * column_pieces <= wanted) classes_ *= 2;
    copies_ = cut_pieces(base.elements, 4 * kPieceElements, 1024);
    phases_.clear();
    if (!in_place) phases_.push_back(copies_.count);
    phases_.push_back(static_cast<int>(column_pieces * classes_));
    worker_scratch_ =
        kIds * sizeof(std::int32_t) + static_cast<std::size_t>(columns_) * sizeof(float);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase < copy_phases_)
      copy(args, piece);
    else
      add(args, piece);
  }

 private:
  static constexpr std::int64_t kColumns = 256, kMaxPieces = 64;

  void copy(const KernelArgs& args, int piece) const {
    const std::int64_t begin = piece * copies_.size,
                       end = std::min(begin + copies_.size, base_.elements);
    if (begin >= end) return;
    if (base_.dense() && args.operands[0] == args.operands[3]) return;  // one array of the caller
    auto* const to = reinterpret_cast<float*>(args.operands[3]) + begin;
    range_io().load(base_, args.operands[0], begin, static_cast<std::size_t>(end - begin), to);
  }

  void add(const KernelArgs& args, int piece) const {
    const std::int64_t part = piece % classes_, first = piece / classes_ * columns_;
    const std::int64_t width = std::min(columns_, e_ - first);
    if (width <= 0) return;
    auto* const table = reinterpret_cast<float*>(args.operands[3]) + first;
    for (std::int64_t at = 0; at < ids_.elements; at += kIds) {
      const std::int64_t n = std::min(kIds, ids_.elements - at);
      const std::int32_t* ids = read_ids(ids_, args.operands[1], at, n, args.worker);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t id = ids[i];
        if (id < 0 || id >= rows_ || (id & (classes_ - 1)) != part) continue;
        adder_(update(args, (at + i) * e_ + first, width), table + id * e_,
               static_cast<std::size_t>(width));
      }
    }
  }

  const std::byte* update(const KernelArgs& args, std::int64_t element, std::int64_t width) const {
    if (updates_.dense()) return args.operands[2] + element * byte_size(updates_.dtype);
    auto* const tile = reinterpret_cast<float*>(args.worker + kIds * sizeof(std::int32_t));
    range_io().load(updates_, args.operands[2], element, static_cast<std::size_t>(width), tile);
    return reinterpret_cast<const std::byte*>(tile);
  }

  Strided base_, ids_, updates_;
  std::int64_t rows_, e_, columns_ = 1, classes_ = 1;
  int copy_phases_ = 0;
  Adder adder_ = nullptr;
  Pieces copies_;
};

}  // namespace

std::unique_ptr<Kernel> make_gather_rows(const Step& step, std::string& why_not) {
  if (step.op != &gather_rows_op) {
    why_not = "another op";
    return nullptr;
  }
  const View& table = step.inputs[0];
  const auto ids = strided(step.inputs[1]), out = strided(step.outputs[0]);
  const bool rows_dense = table.type.shape[1] <= 1 || table.strides[1] == 1;
  if (!ids || !out || !out->dense() || !rows_dense) {
    why_not = "rows of the table or of the result have gaps";
    return nullptr;
  }
  return std::make_unique<GatherRows>(table, *ids);
}

std::unique_ptr<Kernel> make_scatter_add_rows(const Step& step, std::string& why_not) {
  if (step.op != &scatter_add_rows_op) {
    why_not = "another op";
    return nullptr;
  }
  const auto base = strided(step.inputs[0]), ids = strided(step.inputs[1]),
             updates = strided(step.inputs[2]);
  const auto out = strided(step.outputs[0]);
  if (!base || !ids || !updates || !out || !out->dense32()) {
    why_not = "the result is not dense, or a view has too many dimensions";
    return nullptr;
  }
  return std::make_unique<ScatterAddRows>(step, *base, *ids, *updates);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
