// Element types of values, and bf16 as a storage type.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace dew {

// `f64` never appears in a program that runs: it is the type in which the reference interpreter
// judges.
enum class DType : std::uint8_t { f32, bf16, f64, i32, u32, pred };

constexpr std::int64_t byte_size(DType t) {
  switch (t) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::pred:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f64; }
constexpr bool is_integer(DType t) { return t == DType::i32 || t == DType::u32; }

// Name in program text: "f32", "bf16", "f64", "i32", "u32", "pred".
std::string_view name(DType t);
std::optional<DType> parse_dtype(std::string_view text);

// The upper half of an f32. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    auto b = std::bit_cast<std::uint32_t>(value);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((b >> 16) | 0x40u);
      return;
    }
    bits = static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};
static_assert(sizeof(bf16) == 2);

}  // namespace dew
