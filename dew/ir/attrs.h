// Attributes of nodes: a closed set of plain structs that ops share. Each lists its fields once, in
// `fields`; equality, printing and parsing follow from that list.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "dew/ir/type.h"

namespace dew {

class Program;

struct NoAttrs {
  template <class Self, class F>
  static void fields(Self&, F&&) {}
  bool operator==(const NoAttrs&) const = default;
};

// Dimensions that an op works on: reduced ones, the counted one of iota, the joined one of
// concatenate.
struct Axes {
  Dims dims;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("dims", s.dims);
  }
  bool operator==(const Axes&) const = default;
};

// transpose: result dimension i is operand dimension order[i].
struct Permutation {
  Dims order;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("order", s.order);
  }
  bool operator==(const Permutation&) const = default;
};

// dot: result dimensions are batch, free dimensions of lhs, free dimensions of rhs, each in operand
// order.
struct DotDims {
  Dims lhs_batch = {}, rhs_batch = {}, lhs_contract = {}, rhs_contract = {};
  DType out = DType::f32;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("lhs_batch", s.lhs_batch);
    f("rhs_batch", s.rhs_batch);
    f("lhs_contract", s.lhs_contract);
    f("rhs_contract", s.rhs_contract);
    f("out", s.out);
  }
  bool operator==(const DotDims&) const = default;
};

// broadcast: operand dimension i becomes result dimension dims[i] (ascending, equal sizes); all
// others are new. reshape: `dims` is empty.
struct NewShape {
  Dims shape, dims;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("shape", s.shape);
    f("dims", s.dims);
  }
  bool operator==(const NewShape&) const = default;
};

// slice: elements start <= i < limit of each dimension.
struct SliceDims {
  Dims start, limit;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("start", s.start);
    f("limit", s.limit);
  }
  bool operator==(const SliceDims&) const = default;
};

// pad: elements of value zero before and behind each dimension.
struct PadDims {
  Dims low, high;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("low", s.low);
    f("high", s.high);
  }
  bool operator==(const PadDims&) const = default;
};

// constant: every element is `value`. iota: `value` is the counted dimension.
struct Fill {
  Type type;
  double value = 0;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("type", s.type);
    f("value", s.value);
  }
  bool operator==(const Fill&) const = default;
};

struct ConvertTo {
  DType dtype = DType::f32;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("dtype", s.dtype);
  }
  bool operator==(const ConvertTo&) const = default;
};

// A number that an op needs: exponent of pow, epsilon of a norm, decay of an average.
struct Number {
  double value = 0;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("value", s.value);
  }
  bool operator==(const Number&) const = default;
};

// rope. `scaling` is "none", "linear" (positions / factor) or "llama3" (wavelength-dependent, four
// numbers). `inverse` rotates by the negative angle: the gradient.
struct RopeDims {
  std::string scaling = "none";
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_seq_len = 0;
  bool inverse = false;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("scaling", s.scaling);
    f("factor", s.factor);
    f("low_freq_factor", s.low_freq_factor);
    f("high_freq_factor", s.high_freq_factor);
    f("original_max_seq_len", s.original_max_seq_len);
    f("inverse", s.inverse);
  }
  bool operator==(const RopeDims&) const = default;
};

// attention: scores are scale * q.k; softcap > 0 makes them softcap * tanh(score / softcap).
struct AttentionAttrs {
  double scale = 1, softcap = 0;
  bool causal = true;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("scale", s.scale);
    f("softcap", s.softcap);
    f("causal", s.causal);
  }
  bool operator==(const AttentionAttrs&) const = default;
};

// Collectives: the atoms of the mesh that a group's members differ in, major first, and how many
// members it has. `dims`: the dimension that is gathered, scattered or cut; all_to_all: gathered,
// cut. `to`: permute alone.
struct GroupAttrs {
  Dims atoms = {};
  std::int64_t members = 1;
  Dims dims = {}, to = {};
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("atoms", s.atoms);
    f("members", s.members);
    f("dims", s.dims);
    f("to", s.to);
  }
  bool operator==(const GroupAttrs&) const = default;
};

// head_loss: softcap > 0 caps logits as above; z_loss adds z_loss * lse^2 a token; with `gradients`
// the forward pass also makes the gradients of states and table. `atoms`: those that the vocabulary
// is split over, `members` parts; the op itself reduces what a token's loss and gradient need of
// all.
struct HeadAttrs {
  double z_loss = 0, softcap = 0;
  bool gradients = false;
  Dims atoms = {};
  std::int64_t members = 1;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("z_loss", s.z_loss);
    f("softcap", s.softcap);
    f("gradients", s.gradients);
    f("atoms", s.atoms);
    f("members", s.members);
  }
  bool operator==(const HeadAttrs&) const = default;
};

// random_bits: `shape` are the trailing dimensions after rows and columns. dropout: rate. `purpose`
// keeps streams apart.
struct RandomAttrs {
  std::int64_t purpose = 0;
  double rate = 0;
  Dims shape;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("purpose", s.purpose);
    f("rate", s.rate);
    f("shape", s.shape);
  }
  bool operator==(const RandomAttrs&) const = default;
};

// Optimizer updates; each op reads what it needs.
struct UpdateAttrs {
  double b1 = 0, b2 = 0, epsilon = 0, weight_decay = 0, momentum = 0;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("b1", s.b1);
    f("b2", s.b2);
    f("epsilon", s.epsilon);
    f("weight_decay", s.weight_decay);
    f("momentum", s.momentum);
  }
  bool operator==(const UpdateAttrs&) const = default;
};

// scan: `carries` loop-carried values, `slices` operands (and further results) stacked on a leading
// dimension of size `length`, the remaining operands constant. `reverse` visits iteration length-1
// first. Two scans are equal only if they share the body.
struct ScanAttrs {
  std::shared_ptr<const Program> body;
  std::int64_t carries = 0, slices = 0, length = 0;
  bool reverse = false;
  template <class Self, class F>
  static void fields(Self& s, F&& f) {
    f("carries", s.carries);
    f("slices", s.slices);
    f("length", s.length);
    f("reverse", s.reverse);
  }
  bool operator==(const ScanAttrs&) const = default;
};

using Attrs = std::variant<NoAttrs, Axes, Permutation, DotDims, NewShape, SliceDims, PadDims, Fill,
                           ConvertTo, Number, RopeDims, AttentionAttrs, GroupAttrs, HeadAttrs,
                           RandomAttrs, UpdateAttrs, ScanAttrs>;

}  // namespace dew
