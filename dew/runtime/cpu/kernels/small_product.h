// Products of some ten thousand terms in f32, of which attention with few keys has one for each
// head of a row. On AVX2 oneDNN has only its gemm for them, which is made for large ones.
#pragma once

#include <optional>
#include <string>

#include "dew/runtime/cpu/onednn.h"

namespace dew::cpu {

// In f32, small enough, with contiguous rows of b or of its transpose.
bool is_small_product(const ProductShape& shape);

// For the transpose of b, where its columns are contiguous.
std::size_t small_product_scratch(const ProductShape& shape);

// c = a.b, or c += a.b. REQUIRES: is_small_product(shape).
void small_product(const ProductShape& shape, const float* a, const float* b, float* c,
                   float* scratch);

// Whichever is faster: a small product or oneDNN's.
class TileProduct {
 public:
  explicit TileProduct(const ProductShape& shape);

  // As of Product.
  void execute(const void* a, const void* b, void* c, void* scratch) const noexcept;
  std::size_t scratch_bytes() const;
  std::string implementation() const;

 private:
  ProductShape shape_;
  std::optional<Product> onednn_;
};

}  // namespace dew::cpu
