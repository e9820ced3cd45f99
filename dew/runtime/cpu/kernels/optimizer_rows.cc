#include "dew/runtime/cpu/kernels/optimizer_rows.h"

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/optimizer_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

// p - lr (direction + weight_decay p)
HWY_INLINE VF Step(VF p, VF direction, VF lr, VF weight_decay) {
  return hn::NegMulAdd(lr, hn::MulAdd(weight_decay, p, direction), p);
}

void AdamW(const Update& u) {
  const DF d;
  const VF b1 = hn::Set(d, u.b1), rest1 = hn::Set(d, u.rest1 * u.scale), b2 = hn::Set(d, u.b2),
           rest2 = hn::Set(d, u.rest2);
  const VF scale = hn::Set(d, u.scale), c1 = hn::Set(d, u.c1), c2 = hn::Set(d, u.c2),
           epsilon = hn::Set(d, u.epsilon);
  const VF lr = hn::Set(d, u.lr), weight_decay = hn::Set(d, u.weight_decay);
  ForRow(u.n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF raw = part.template Load<Bits32>(u.g + i);
    const VF g = hn::Mul(scale, raw);
    const VF m = hn::MulAdd(b1, part.template Load<Bits32>(u.state[1] + i), hn::Mul(rest1, raw));
    const VF v =
        hn::MulAdd(b2, part.template Load<Bits32>(u.state[2] + i), hn::Mul(rest2, hn::Mul(g, g)));
    const VF root = hn::Add(hn::Sqrt(hn::Mul(v, c2)), epsilon);
    const VF p = part.template Load<Bits32>(u.state[0] + i);
    part.template Store<Bits32>(m, u.out[1] + i);
    part.template Store<Bits32>(v, u.out[2] + i);
    part.template Store<Bits32>(Step(p, hn::Div(hn::Mul(m, c1), root), lr, weight_decay),
                                u.out[0] + i);
  });
}

void Lion(const Update& u) {
  const DF d;
  const VF b1 = hn::Set(d, u.b1), rest1 = hn::Set(d, u.rest1), b2 = hn::Set(d, u.b2),
           rest2 = hn::Set(d, u.rest2);
  const VF scale = hn::Set(d, u.scale), lr = hn::Set(d, u.lr),
           weight_decay = hn::Set(d, u.weight_decay);
  const VF one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  ForRow(u.n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF g = hn::Mul(scale, part.template Load<Bits32>(u.g + i));
    const VF old = part.template Load<Bits32>(u.state[1] + i),
             p = part.template Load<Bits32>(u.state[0] + i);
    const VF mixed = hn::MulAdd(b1, old, hn::Mul(rest1, g));
    const VF sign = hn::IfThenElse(hn::Gt(hn::Abs(mixed), zero), hn::CopySign(one, mixed), mixed);
    part.template Store<Bits32>(hn::MulAdd(b2, old, hn::Mul(rest2, g)), u.out[1] + i);
    part.template Store<Bits32>(Step(p, sign, lr, weight_decay), u.out[0] + i);
  });
}

void Sgd(const Update& u) {
  const DF d;
  const VF momentum = hn::Set(d, u.b1), scale = hn::Set(d, u.scale);
  const VF lr = hn::Set(d, u.lr), weight_decay = hn::Set(d, u.weight_decay);
  ForRow(u.n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF g = hn::Mul(scale, part.template Load<Bits32>(u.g + i));
    const VF m = hn::MulAdd(momentum, part.template Load<Bits32>(u.state[1] + i), g);
    const VF p = part.template Load<Bits32>(u.state[0] + i);
    part.template Store<Bits32>(m, u.out[1] + i);
    part.template Store<Bits32>(Step(p, m, lr, weight_decay), u.out[0] + i);
  });
}

void Ema(const Update& u) {
  const VF decay = hn::Set(DF(), u.b1), rest = hn::Set(DF(), u.rest1);
  ForRow(u.n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF p = hn::Mul(rest, part.template Load<Bits32>(u.g + i));
    part.template Store<Bits32>(hn::MulAdd(decay, part.template Load<Bits32>(u.state[0] + i), p),
                                u.out[0] + i);
  });
}

const UpdateTable& Updates() {
  static constexpr UpdateTable table = {AdamW, Lion, Sgd, Ema};
  return table;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Updates);

const UpdateTable& update_table() { return HWY_DYNAMIC_DISPATCH(Updates)(); }

}  // namespace dew::cpu
#endif  // HWY_ONCE
