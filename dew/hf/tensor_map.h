// Which tensor of a Hugging Face model is which parameter of ours, and how one becomes the other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/nn/transformer.h"

namespace dew::hf {

// How their elements lie. Ours are [in, out...] for a product's kernel.
enum class Order {
  table,   // as ours: look-up tables, the head
  vector,  // one dimension: scales and biases
  out_in,  // a matrix [out, in], as torch.nn.Linear has it
  in_out,  // a matrix [in, out], as GPT-2's Conv1D has it
};

// One row of a family's table. Names have {} where the number of the layer goes and no base prefix
// ("model."); ours are those of the stack ("layers/attention/q_proj/kernel"). Several of ours may
// be parts of one of theirs, along `out`: then this one begins at `first` of `total`.
struct TensorRow {
  std::string theirs, ours;
  Order order = Order::out_in;
  std::int64_t first = 0, total = 0;  // total 0: all of it
  bool outside_base = false;          // has no base prefix: the head
};

// One layer of one of our parameters, in one of their tensors.
struct Placement {
  std::string ours;  // "layers_3/attention/q_proj/kernel"
  Dims our_shape;
  Order order = Order::out_in;
  std::int64_t first = 0, total = 0;  // along `out`; total is never 0
};

// One of their tensors, and what it is made of, in order.
struct TheirTensor {
  std::string name;  // with the base prefix
  Dims shape;
  std::vector<Placement> parts;
};

// All tensors of a model, in the order of the table, layer by layer. Every parameter of the model
// is in exactly one of them, which is checked.
std::vector<TheirTensor> map_tensors(std::span<const TensorRow> rows, std::string_view base_prefix,
                                     const models::CausalTransformer& model);

// Copies the elements of a part from their tensor to ours and back, all row-major. REQUIRES: spans
// of the sizes of the shapes.
void to_ours(const Placement& part, std::span<const float> theirs, std::span<float> ours);
void to_theirs(const Placement& part, std::span<const float> ours, std::span<float> theirs);

// Their whole tensor from ours, which are found by name.
using FindOurs = std::function<std::span<const float>(const std::string& name)>;
void make_theirs(const TheirTensor& tensor, const FindOurs& find, std::span<float> out);

}  // namespace dew::hf
