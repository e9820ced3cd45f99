// Rotary position embedding. The frequencies are made once a call (the base is an operand), sines
// and cosines once a token, from angles in double, so that they are right to a few ulp for
// positions of a million; all heads of a token use them.
#include <algorithm>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"
#include "dew/runtime/cpu/kernels/rope_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/fused_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

void Tables(double position, const double* frequency, std::size_t n, float* sin, float* cos) {
  const DD dd;
  const VD p = hn::Set(dd, position);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const VD low = hn::Mul(p, hn::LoadU(dd, frequency + i));
    const VD high = hn::Mul(p, hn::LoadU(dd, frequency + i + kLanes / 2));
    const SinCosPair pair = SinCos(ReduceAngle(low, high));
    hn::StoreU(pair.sin, DF(), sin + i);
    hn::StoreU(pair.cos, DF(), cos + i);
  }
}

template <class Kind>
void Turn(const std::byte* from, const float* sin, const float* cos, std::size_t half,
          std::byte* to) {
  using T = typename Kind::T;
  const T* const x = reinterpret_cast<const T*>(from);
  T* const y = reinterpret_cast<T*>(to);
  ForRow(half, [&](std::size_t i, auto part) HWY_ATTR {
    const VF a = part.template Load<Kind>(x + i), b = part.template Load<Kind>(x + half + i);
    const VF s = hn::LoadU(DF(), sin + i), c = hn::LoadU(DF(), cos + i);
    part.template Store<Kind>(hn::NegMulAdd(b, s, hn::Mul(a, c)), y + i);
    part.template Store<Kind>(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i);
  });
}

RopeRoutines FindRope(DType dtype) {
  return {Tables, dtype == DType::bf16 ? Turn<Brain16> : Turn<Bits32>};
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {
namespace {

HWY_EXPORT(FindRope);

constexpr std::int64_t kPieceElements = 16 * 1024;

class Rope final : public Kernel {
 public:
  Rope(const Step& step, const Strided& positions, const RopeDims& dims)
      : dims_(dims), positions_(positions), in_(step.inputs[0]), out_(step.outputs[0]) {
    routines_ = HWY_DYNAMIC_DISPATCH(FindRope)(in_.type.dtype);
    size_ = byte_size(in_.type.dtype);
    const Dims& shape = in_.type.shape;
    tokens_ = shape[0] * shape[1];
    heads_ = shape[2];
    d_ = shape[3];
    padded_ = (d_ / 2 + 15) / 16 * 16;
    pieces_ = cut_pieces(
        tokens_, std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, heads_ * d_)),
        1);
    phases_ = {1, pieces_.count};
    shared_scratch_ = static_cast<std::size_t>(padded_) * sizeof(double);
    worker_scratch_ = 2 * static_cast<std::size_t>(padded_) * sizeof(float);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return make_frequencies(args);
    const std::int64_t begin = piece * pieces_.size, end = std::min(begin + pieces_.size, tokens_);
    for (std::int64_t token = begin; token < end; ++token) turn_token(args, token);
  }

 private:
  void make_frequencies(const KernelArgs& args) const {
    auto* const to = reinterpret_cast<double*>(args.shared);
    const double base = static_cast<double>(*reinterpret_cast<const float*>(args.operands[2]));
    for (std::int64_t i = 0; i < padded_; ++i) {
      to[i] = i >= d_ / 2 ? 0.0 : (dims_.inverse ? -1.0 : 1.0) * rope_frequency(dims_, base, i, d_);
    }
  }

  void turn_token(const KernelArgs& args, std::int64_t token) const {
    auto* const sin = reinterpret_cast<float*>(args.worker);
    float* const cos = sin + padded_;
    const auto position =
        reinterpret_cast<const std::int32_t*>(args.operands[1])[Runs(positions_, token).offset()];
    routines_.tables(position, reinterpret_cast<const double*>(args.shared),
                     static_cast<std::size_t>(padded_), sin, cos);
    const std::int64_t row = token / in_.type.shape[1], column = token % in_.type.shape[1];
    const std::byte* from =
        args.operands[0] + (row * in_.strides[0] + column * in_.strides[1]) * size_;
    std::byte* to = args.operands[3] + (row * out_.strides[0] + column * out_.strides[1]) * size_;
    for (std::int64_t h = 0; h < heads_; ++h) {
      routines_.turn(from, sin, cos, static_cast<std::size_t>(d_ / 2), to);
      from += in_.strides[2] * size_;
      to += out_.strides[2] * size_;
    }
  }

  RopeDims dims_;
  Strided positions_;
  View in_, out_;
  RopeRoutines routines_;
  std::int64_t size_ = 4, tokens_ = 0, heads_ = 0, d_ = 0, padded_ = 0;
  Pieces pieces_;
};

}  // namespace

std::unique_ptr<Kernel> make_rope(const Step& step, std::string& why_not) {
  const auto* dims = step.op == &rope_op ? std::get_if<RopeDims>(&step.attrs) : nullptr;
  if (dims == nullptr) {
    why_not = "another op";
    return nullptr;
  }
  const View &x = step.inputs[0], &y = step.outputs[0];
  const auto positions = strided(step.inputs[1]);
  const bool heads_dense = x.strides[3] == 1 && y.strides[3] == 1;
  if (!positions || !heads_dense || !is_float(x.type.dtype) || x.type.dtype != y.type.dtype) {
    why_not = format("a head's elements must lie side by side; x is {}", name(x.type.dtype));
    return nullptr;
  }
  return std::make_unique<Rope>(step, *positions, *dims);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
