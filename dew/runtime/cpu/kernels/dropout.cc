// Counter-based random words, and dropout made of them. Whatever the shape, elements are walked in
// row-major order in blocks of counters, so the two ops and every cut into pieces see the same
// words.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/dropout_rows.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/dropout.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

using DU64 = hn::RepartitionToWide<DU>;
using VU64 = hn::Vec<DU64>;
constexpr std::size_t kWide = kLanes / 2;  // counters in a vector

// Products of the lower halves of the lanes. So words stay in lower halves and the upper ones may
// hold anything.
HWY_INLINE VU64 Product(VU64 a, VU64 b) {
  return hn::MulEven(hn::BitCast(DU(), a), hn::BitCast(DU(), b));
}

struct Counters {
  VU64 c0, c1, c2, c3;
};

HWY_INLINE Counters LoadCounters(const CounterBlock& counters, std::size_t i) {
  const DU64 d;
  const hn::Half<DU> narrow;
  return {hn::PromoteTo(d, hn::LoadU(narrow, counters.word[0] + i)),
          hn::PromoteTo(d, hn::LoadU(narrow, counters.word[1] + i)),
          hn::PromoteTo(d, hn::LoadU(narrow, counters.word[2] + i)), hn::Zero(d)};
}

HWY_INLINE Counters Round(const Counters& c, VU64 k0, VU64 k1) {
  const VU64 p0 = Product(hn::Set(DU64(), 0xD2511F53u), c.c0),
             p1 = Product(hn::Set(DU64(), 0xCD9E8D57u), c.c2);
  return {hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c.c1, k0)), p1,
          hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c.c3, k1)), p0};
}

HWY_INLINE void StoreWords(const Counters& c, std::uint32_t* words) {
  const DU64 d;
  const VU64 lower = hn::Set(d, std::uint64_t{0xffffffffu});
  const VU64 first = hn::Or(hn::And(c.c0, lower), hn::ShiftLeft<32>(c.c1));
  const VU64 second = hn::Or(hn::And(c.c2, lower), hn::ShiftLeft<32>(c.c3));
  hn::StoreInterleaved2(first, second, d, reinterpret_cast<std::uint64_t*>(words));
}

// Two vectors side by side: a round waits for its products.
void PhiloxBlock(RandomKey key, const CounterBlock& counters, std::uint32_t* words) {
  const DU64 d;
  for (std::size_t i = 0; i < kCounters; i += 2 * kWide) {
    Counters a = LoadCounters(counters, i), b = LoadCounters(counters, i + kWide);
    std::uint32_t k0 = key.lo, k1 = key.hi;
    for (int round = 0; round < 10; ++round) {
      const VU64 v0 = hn::Set(d, std::uint64_t{k0}), v1 = hn::Set(d, std::uint64_t{k1});
      a = Round(a, v0, v1);
      b = Round(b, v0, v1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    StoreWords(a, words + 4 * i);
    StoreWords(b, words + 4 * (i + kWide));
  }
}

void Drop(const float* x, const std::uint32_t* words, std::uint32_t least, float scale,
          std::size_t n, float* y) {
  const VF factor = hn::Set(DF(), scale);
  const VI below = hn::Set(DI(), static_cast<std::int32_t>(least) - 1);
  const auto* const w = reinterpret_cast<const float*>(words);
  ForRow(n, [&](std::size_t i, auto part) HWY_ATTR {
    const VU bits = hn::BitCast(DU(), part.template Load<Bits32>(w + i));
    const auto kept =
        hn::RebindMask(DF(), hn::Gt(hn::BitCast(DI(), hn::ShiftRight<8>(bits)), below));
    part.template Store<Bits32>(
        hn::IfThenElseZero(kept, hn::Mul(part.template Load<Bits32>(x + i), factor)), y + i);
  });
}

const RandomRoutines& Routines() {
  static constexpr RandomRoutines routines = {PhiloxBlock, Drop};
  return routines;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Routines);

const RandomRoutines& random_routines() { return HWY_DYNAMIC_DISPATCH(Routines)(); }

namespace {

constexpr std::int64_t kPieceCounters = 4096;

// An array [rows, columns, trailing..] of random words.
class RandomKernel final : public Kernel {
 public:
  // `first` is the number of the first counter operand: 0 for random_bits, 1 for dropout.
  RandomKernel(const Step& step, const RandomAttrs& attrs, std::size_t first, const Strided& x,
               const Strided& y)
      : first_(first), x_(x), y_(y), purpose_(static_cast<std::uint32_t>(attrs.purpose)) {
    const Dims& shape = step.outputs[0].type.shape;
    columns_ = shape[1];
    trailing_ = element_count(std::span(shape).subspan(2));
    quads_ = (trailing_ + 3) / 4;
    counters_ = shape[0] * shape[1] * quads_;
    pieces_ = cut_pieces(counters_, kPieceCounters, kCounters);
    phases_ = {pieces_.count};
    worker_scratch_ = sizeof(Scratch);
    if (first_ == 1) set_rate(attrs.rate);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int, int piece) const noexcept override {
    auto& scratch = *reinterpret_cast<Scratch*>(args.worker);
    const RandomKey key = key_of(args);
    const std::int64_t end = std::min((piece + 1) * pieces_.size, counters_);
    for (std::int64_t at = piece * pieces_.size; at < end; at += kCounters) {
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kCounters, end - at));
      const std::int64_t element = at / quads_ * trailing_ + at % quads_ * 4;
      const std::size_t n = words(args, key, at, count, scratch);
      if (first_ == 0)
        range_io().store(y_, args.operands[5], element, n,
                         reinterpret_cast<const float*>(scratch.words));
      else
        drop(args, element, n, scratch);
    }
  }

 private:
  struct Scratch {
    CounterBlock counters;
    std::uint32_t words[4 * kCounters];
    float x[4 * kCounters], y[4 * kCounters];
  };

  // The least number of 24 bits whose uniform number is at least the rate: comparing it gives what
  // comparing floats would.
  void set_rate(double rate) {
    std::uint32_t low = 0, high = 1u << 24;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (static_cast<double>(uniform(middle << 8)) >= rate)
        high = middle;
      else
        low = middle + 1;
    }
    least_ = low;
    scale_ = static_cast<float>(1.0 / (1.0 - rate));
  }

  const std::int32_t* counter_operand(const KernelArgs& args, std::size_t k) const {
    return reinterpret_cast<const std::int32_t*>(args.operands[first_ + k]);
  }

  RandomKey key_of(const KernelArgs& args) const {
    const auto word = [&](std::size_t k, int i) {
      return static_cast<std::uint32_t>(counter_operand(args, k)[i]);
    };
    return fold({word(0, 0), word(0, 1)}, purpose_, word(1, 0), word(2, 0), 0);
  }

  // Fills scratch.words with the words of the elements of `count` counters from `at`; returns how
  // many elements those are. Where `count` is less than a block, the rest of the block is made from
  // what lies there, and not used.
  std::size_t words(const KernelArgs& args, RandomKey key, std::int64_t at, std::size_t count,
                    Scratch& s) const {
    const std::int32_t* const rows = counter_operand(args, 3);
    const std::int32_t* const columns = counter_operand(args, 4);
    const std::int64_t cell = at / quads_;
    std::int64_t quad = at % quads_, row = cell / columns_, column = cell % columns_;
    for (std::size_t i = 0; i < count;) {
      const std::size_t end = std::min(count, i + static_cast<std::size_t>(quads_ - quad));
      const auto c = static_cast<std::uint32_t>(columns[column]),
                 r = static_cast<std::uint32_t>(rows[row]);
      for (; i < end; ++i) {
        s.counters.word[0][i] = static_cast<std::uint32_t>(quad++);
        s.counters.word[1][i] = c;
        s.counters.word[2][i] = r;
      }
      quad = 0;
      if (++column == columns_) {
        column = 0;
        ++row;
      }
    }
    random_routines().philox(key, s.counters, s.words);
    return trailing_ % 4 == 0 ? 4 * count : close_gaps(at, count, s.words);
  }

  // The last counter of a cell has words that no element uses.
  std::size_t close_gaps(std::int64_t at, std::size_t count, std::uint32_t* words) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t quad = (at + static_cast<std::int64_t>(i)) % quads_;
      const auto used = static_cast<std::size_t>(std::min<std::int64_t>(4, trailing_ - 4 * quad));
      std::memmove(words + n, words + 4 * i, used * sizeof *words);
      n += used;
    }
    return n;
  }

  void drop(const KernelArgs& args, std::int64_t element, std::size_t n, Scratch& s) const {
    const RangeIo& io = range_io();
    std::byte* const out = args.operands[6];
    float* const y = write_target(y_, out, element, s.y);
    random_routines().drop(read_range(io, x_, args.operands[0], element, n, s.x), s.words, least_,
                           scale_, n, y);
    write_range(io, y_, out, element, n, y);
  }

  std::size_t first_;
  Strided x_, y_;
  std::uint32_t purpose_, least_ = 0;
  float scale_ = 1;
  std::int64_t columns_ = 1, trailing_ = 1, quads_ = 1, counters_ = 0;  // quads: counters of a cell
  Pieces pieces_;
};

std::unique_ptr<Kernel> make(const Step& step, const OpDef& op, std::size_t first,
                             std::string& why_not) {
  const auto* attrs = step.op == &op ? std::get_if<RandomAttrs>(&step.attrs) : nullptr;
  if (attrs == nullptr) {
    why_not = "another op";
    return nullptr;
  }
  const auto x = strided(step.inputs[0]), y = strided(step.outputs[0]);
  for (std::size_t k = first; k < step.inputs.size(); ++k) {
    const auto s = strided(step.inputs[k]);
    if (!s || !s->dense()) why_not = format("operand {} is not dense", k);
  }
  if (!x || !y) why_not = "too many dimensions";
  if (!why_not.empty()) return nullptr;
  return std::make_unique<RandomKernel>(step, *attrs, first, *x, *y);
}

}  // namespace

std::unique_ptr<Kernel> make_random_bits(const Step& step, std::string& why_not) {
  return make(step, random_bits_op, 0, why_not);
}
std::unique_ptr<Kernel> make_dropout(const Step& step, std::string& why_not) {
  return make(step, dropout_op, 1, why_not);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
