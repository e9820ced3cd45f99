#include "dew/runtime/cpu/kernels/small_product.h"

#include <gtest/gtest.h>

#include <random>

#include "dew/base/rng.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

// Memory in which each of a product's operands has gaps that must stay as they are.
struct Operands {
  ProductShape shape;
  std::vector<float> a, b, c;

  Operands(std::int64_t m, std::int64_t n, std::int64_t k, std::mt19937& random) {
    const auto gap = [&] { return static_cast<std::int64_t>(random() % 3); };
    shape = {.m = m, .n = n, .k = k, .c_row = n + gap()};
    shape.accumulate = random() % 2 == 0;
    shape.batch = 1 + gap();
    set(random() % 2 == 0, m, k, gap(), shape.a_row, shape.a_col);
    set(random() % 2 == 0, k, n, gap(), shape.b_row, shape.b_col);
    shape.a_batch = m * shape.a_row + k * shape.a_col;
    shape.b_batch = k * shape.b_row + n * shape.b_col;
    shape.c_batch = m * shape.c_row + gap();
    for (auto [matrix, size] :
         {std::pair(&a, shape.a_batch), {&b, shape.b_batch}, {&c, shape.c_batch}}) {
      for (std::int64_t i = 0; i < shape.batch * size; ++i)
        matrix->push_back(static_cast<float>(random() % 64) / 8 - 4);
    }
  }

  static void set(bool by_rows, std::int64_t rows, std::int64_t cols, std::int64_t gap,
                  std::int64_t& row, std::int64_t& col) {
    row = by_rows ? cols + gap : 1;
    col = by_rows ? 1 : rows + gap;
  }

  // These numbers are multiples of 1/8, and all sums exact.
  std::vector<float> expected() const {
    std::vector<float> out = c;
    for (std::int64_t t = 0; t < shape.batch; ++t) {
      for (std::int64_t i = 0; i < shape.m; ++i) {
        for (std::int64_t j = 0; j < shape.n; ++j) {
          float& sum = out[static_cast<std::size_t>(t * shape.c_batch + i * shape.c_row + j)];
          if (!shape.accumulate) sum = 0;
          for (std::int64_t k = 0; k < shape.k; ++k) {
            sum +=
                a[static_cast<std::size_t>(t * shape.a_batch + i * shape.a_row + k * shape.a_col)] *
                b[static_cast<std::size_t>(t * shape.b_batch + k * shape.b_row + j * shape.b_col)];
          }
        }
      }
    }
    return out;
  }
};

TEST(SmallProduct, AnySizeAndLayout) {
  std::mt19937 random(7);
  for_each_target([&] {
    for (const std::int64_t m : {1, 3, 4, 7, 18}) {
      for (const std::int64_t n : {1, 5, 8, 16, 18, 35, 70}) {
        for (const std::int64_t k : {1, 2, 7, 16}) {
          Operands x(m, n, k, random);
          ASSERT_TRUE(is_small_product(x.shape));
          std::vector<float> scratch(small_product_scratch(x.shape) / sizeof(float));
          const std::vector<float> expected = x.expected();
          small_product(x.shape, x.a.data(), x.b.data(), x.c.data(), scratch.data());
          ASSERT_EQ(x.c, expected) << m << " x " << n << " x " << k;
        }
      }
    }
  });
}

TEST(SmallProduct, OthersAreOneDnns) {
  EXPECT_TRUE(is_small_product({.m = 32, .n = 32, .k = 16, .a_row = 16, .b_row = 32, .c_row = 32}));
  EXPECT_FALSE(
      is_small_product({.m = 512, .n = 512, .k = 512, .a_row = 512, .b_row = 512, .c_row = 512}));
  EXPECT_FALSE(is_small_product(
      {.m = 8, .n = 8, .k = 8, .a_row = 8, .b_row = 8, .c_row = 8, .in = DType::bf16}));
}

}  // namespace
}  // namespace dew::cpu
