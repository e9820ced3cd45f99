// Matrix products of fixed shape, by oneDNN on the calling thread.
//
// oneDNN never starts threads here: whoever makes or executes a product has called
// onednn_thread_init() (both do it if need be), so primitives are made for one thread and the
// plan's workers are the only parallelism.
//
// oneDNN's memory objects hold the address of an operand, so two threads cannot share them. Threads
// are numbered, a number that a finished thread leaves is used again, and a product owns the memory
// objects and argument list of every number, made ahead: executing sets four addresses (8 ns each)
// and calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dew/base/dtype.h"

namespace dew::cpu {

// Gives this thread one OpenMP thread, a number and a stream. Cheap when repeated. Workers, and
// threads that make kernels, call it when they start.
void onednn_thread_init();

// Whether products of bf16 are worth giving to oneDNN: it has them (slowly) on any AVX-512, quickly
// with AVX512-BF16 or AMX.
bool onednn_has_fast_bf16();

// True while this thread is inside oneDNN, whose own allocations a counting test leaves out.
bool inside_onednn();

// c[m, n] (+)= sum over k of a[m, k] b[k, n], `batch` times. Strides are in elements; of each pair
// of an operand, one is 1 (a transposed operand is one whose row stride is 1). c's column stride
// is 1.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_row = 0, a_col = 1, b_row = 0, b_col = 1, c_row = 0;
  DType in = DType::f32, out = DType::f32;  // f32 or bf16; bf16 -> f32 is allowed. Sums are f32.
  bool accumulate = false;  // add to c (which must not be NaN where it is not wanted)
  std::int64_t batch = 1, a_batch = 0, b_batch = 0, c_batch = 0;

  bool operator==(const ProductShape&) const = default;
};

class Product {
 public:
  // REQUIRES: no size is 0. Throws an internal Error if oneDNN has only a reference implementation.
  explicit Product(const ProductShape& shape);
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  // `scratch` has scratch_bytes() and is aligned to 64. Any number of threads at once.
  void execute(const void* a, const void* b, void* c, void* scratch) const noexcept;

  const ProductShape& shape() const;
  std::size_t scratch_bytes() const;
  const std::string& implementation() const;  // "brg:avx512_core"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dew::cpu
