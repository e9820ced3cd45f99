// Products of rows, f32 from f32 or bf16. Each row is one sum of vectors of lanes, in order.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/row_dot.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

struct RowSum {
  VF sum;
  static HWY_INLINE RowSum None() { return {hn::Zero(DF())}; }
  HWY_INLINE void Join(const RowSum& other) { sum = hn::Add(sum, other.sum); }
};

template <class Kind>
void Rows(const std::byte* a, const std::byte* b, std::size_t rows, std::size_t width, float* out) {
  const auto* x = reinterpret_cast<const typename Kind::T*>(a);
  const auto* y = reinterpret_cast<const typename Kind::T*>(b);
  for (std::size_t r = 0; r < rows; ++r, x += width, y += width) {
    const auto total = SumRow<RowSum>(width, [&](RowSum& s, std::size_t i, auto part) HWY_ATTR {
      s.sum = hn::MulAdd(part.template Load<Kind>(x + i), part.template Load<Kind>(y + i), s.sum);
    });
    out[r] = hn::GetLane(hn::SumOfLanes(DF(), total.sum));
  }
}

using RowsFunction = void (*)(const std::byte*, const std::byte*, std::size_t, std::size_t, float*);
RowsFunction FindRows(DType dtype) { return dtype == DType::bf16 ? Rows<Brain16> : Rows<Bits32>; }

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(FindRows);

namespace {

constexpr std::int64_t kPieceElements = 64 * 1024;

class RowDot final : public Kernel {
 public:
  RowDot(std::int64_t rows, std::int64_t width, DType dtype)
      : width_(width),
        row_bytes_(width * byte_size(dtype)),
        rows_(HWY_DYNAMIC_DISPATCH(FindRows)(dtype)) {
    const std::int64_t target =
        std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, width));
    pieces_ = cut_pieces(rows, target, 1);
    count_ = rows;
    phases_ = {rows == 0 ? 0 : pieces_.count};
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    const std::int64_t first = piece * pieces_.size, last = std::min(first + pieces_.size, count_);
    if (first >= last) return;
    rows_(args.operands[0] + first * row_bytes_, args.operands[1] + first * row_bytes_,
          static_cast<std::size_t>(last - first), static_cast<std::size_t>(width_),
          reinterpret_cast<float*>(args.operands[2]) + first);
  }

 private:
  std::int64_t width_, row_bytes_, count_ = 0;
  void (*rows_)(const std::byte*, const std::byte*, std::size_t, std::size_t, float*);
  Pieces pieces_;
};

}  // namespace

std::unique_ptr<Kernel> make_row_dot(const Step& step, std::string& why_not) {
  const Type& type = step.inputs[0].type;
  if (type.dtype != DType::f32 && type.dtype != DType::bf16)
    why_not = format("rows of {}", name(type.dtype));
  for (const View& v : step.inputs) {
    if (!is_dense(v)) why_not = "rows are not dense";
  }
  if (!why_not.empty()) return nullptr;
  return std::make_unique<RowDot>(element_count(step.outputs[0].type.shape), type.shape.back(),
                                  type.dtype);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
