// Optimizer updates: one pass over parameter, state and gradient. Without `commit` nothing is
// touched (or everything is copied as it is, if results have places of their own), so no bit
// changes, not even of a NaN.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"
#include "dew/runtime/cpu/kernels/optimizer_rows.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;
constexpr std::int64_t kTile = 1024;  // elements, where an array is not dense

// Operands: `states` arrays, the gradient, scalars, commit. Results: the states.
class Optimizer final : public Kernel {
 public:
  // `scalars` between gradient and commit: lr, [c1, c2,] scale; none for ema.
  Optimizer(std::size_t states, std::size_t scalars, std::vector<Strided> arrays,
            const Update& constants, UpdateTable::Routine routine)
      : states_(states),
        scalars_(scalars),
        arrays_(std::move(arrays)),
        constants_(constants),
        routine_(routine) {
    pieces_ = cut_pieces(arrays_[0].elements, kPieceElements, kTile);
    phases_ = {pieces_.count};
    const auto dense = [](const Strided& s) { return s.dense(); };
    tile_ = std::all_of(arrays_.begin(), arrays_.end(), dense) ? pieces_.size : kTile;
    if (tile_ == kTile) worker_scratch_ = arrays_.size() * kTile * sizeof(float);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    const std::int64_t begin = piece * pieces_.size,
                       end = std::min(begin + pieces_.size, arrays_[0].elements);
    const bool commit = *args.operands[first_output() - 1] != std::byte{0};
    for (std::int64_t at = begin; at < end; at += tile_) {
      const auto n = static_cast<std::size_t>(std::min(tile_, end - at));
      if (commit)
        update(args, at, n);
      else
        keep(args, at, n);
    }
  }

 private:
  std::size_t first_output() const { return states_ + 1 + scalars_ + 1; }

  float scalar(const KernelArgs& args, std::size_t k) const {
    return *reinterpret_cast<const float*>(args.operands[states_ + 1 + k]);
  }

  void update(const KernelArgs& args, std::int64_t at, std::size_t n) const {
    const RangeIo& io = range_io();
    Update u = constants_;
    u.n = n;
    if (scalars_ > 0) u.lr = scalar(args, 0);
    if (scalars_ > 0) u.scale = scalar(args, scalars_ - 1);
    if (scalars_ == 4) {
      u.c1 = scalar(args, 1);
      u.c2 = scalar(args, 2);
    }
    auto* tile = reinterpret_cast<float*>(args.worker);
    for (std::size_t k = 0; k < states_; ++k, tile += kTile) {
      u.state[k] = read_range(io, arrays_[k], args.operands[k], at, n, tile);
    }
    u.g = read_range(io, arrays_[states_], args.operands[states_], at, n, tile);
    for (std::size_t k = 0; k < states_; ++k) {
      tile += kTile;
      u.out[k] = write_target(arrays_[states_ + 1 + k], output(args, k), at, tile);
    }
    routine_(u);
    for (std::size_t k = 0; k < states_; ++k)
      write_range(io, arrays_[states_ + 1 + k], output(args, k), at, n, u.out[k]);
  }

  void keep(const KernelArgs& args, std::int64_t at, std::size_t n) const {
    const RangeIo& io = range_io();
    for (std::size_t k = 0; k < states_; ++k) {
      if (output(args, k) == args.operands[k]) continue;
      const float* from = read_range(io, arrays_[k], args.operands[k], at, n,
                                     reinterpret_cast<float*>(args.worker));
      io.store(arrays_[states_ + 1 + k], output(args, k), at, n, from);
    }
  }

  std::byte* output(const KernelArgs& args, std::size_t k) const {
    return args.operands[first_output() + k];
  }

  std::size_t states_, scalars_;
  std::vector<Strided> arrays_;  // states, gradient, results
  Update constants_;
  UpdateTable::Routine routine_;
  Pieces pieces_;
  std::int64_t tile_ = kTile;
};

std::unique_ptr<Kernel> make(const Step& step, const OpDef& op, std::size_t states,
                             const Update& constants, UpdateTable::Routine routine,
                             std::string& why_not) {
  const std::size_t arrays = states + 1;
  if (step.op != &op || step.inputs.size() < arrays + 1 || step.outputs.size() != states) {
    why_not = "another op";
    return nullptr;
  }
  std::vector<Strided> strides;
  const auto add = [&](const View& v) {
    const auto s = strided(v);
    if (!s)
      why_not = "too many dimensions";
    else if (s->dtype != DType::f32)
      why_not = format("an array is {}", name(s->dtype));
    else
      strides.push_back(*s);
  };
  for (std::size_t k = 0; k < arrays; ++k) add(step.inputs[k]);
  for (const View& v : step.outputs) add(v);
  if (strides.size() != arrays + states) return nullptr;
  const std::size_t scalars = step.inputs.size() - arrays - 1;
  return std::make_unique<Optimizer>(states, scalars, std::move(strides), constants, routine);
}

Update constants_of(const Step& step) {
  Update u;
  const auto* a = std::get_if<UpdateAttrs>(&step.attrs);
  if (a == nullptr) return u;
  u.b1 = static_cast<float>(a->b1);
  u.rest1 = static_cast<float>(1.0 - a->b1);
  u.b2 = static_cast<float>(a->b2);
  u.rest2 = static_cast<float>(1.0 - a->b2);
  u.epsilon = static_cast<float>(a->epsilon);
  u.weight_decay = static_cast<float>(a->weight_decay);
  return u;
}

}  // namespace

std::unique_ptr<Kernel> make_adamw(const Step& step, std::string& why_not) {
  return make(step, adamw_op, 3, constants_of(step), update_table().adamw, why_not);
}

std::unique_ptr<Kernel> make_lion(const Step& step, std::string& why_not) {
  return make(step, lion_op, 2, constants_of(step), update_table().lion, why_not);
}

std::unique_ptr<Kernel> make_sgd(const Step& step, std::string& why_not) {
  Update u = constants_of(step);
  if (const auto* a = std::get_if<UpdateAttrs>(&step.attrs)) u.b1 = static_cast<float>(a->momentum);
  return make(step, sgd_op, 2, u, update_table().sgd, why_not);
}

std::unique_ptr<Kernel> make_ema(const Step& step, std::string& why_not) {
  Update u;
  if (const auto* decay = std::get_if<Number>(&step.attrs)) {
    u.b1 = static_cast<float>(decay->value);
    u.rest1 = static_cast<float>(1.0 - decay->value);
  }
  return make(step, ema_op, 1, u, update_table().ema, why_not);
}

}  // namespace dew::cpu
