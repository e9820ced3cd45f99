#include "dew/base/rng.h"

#include <cmath>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dew {
namespace {

// P. J. Acklam's rational approximation of the inverse normal distribution function (relative
// error 1.2e-9).
double inverse_normal_central(double q) {  // argument 0.5 + q
  const double r = q * q;
  const double num =
      ((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
        1.383577518672690e+02) *
           r -
       3.066479806614716e+01) *
          r +
      2.506628277459239e+00;
  const double den =
      ((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
        6.680131188771972e+01) *
           r -
       1.328068155288572e+01) *
          r +
      1.0;
  return q * num / den;
}

double inverse_normal_tail(double p) {  // p below 0.02425
  const double q = std::sqrt(-2.0 * std::log(p));
  const double num =
      ((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
        2.549732539343734e+00) *
           q +
       4.374664141464968e+00) *
          q +
      2.938163982698783e+00;
  const double den =
      (((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
       3.754408661907416e+00) *
          q +
      1.0;
  return num / den;
}

double inverse_normal(double u) {
  constexpr double kTail = 0.02425;
  if (u < kTail) return inverse_normal_tail(u);
  if (u > 1.0 - kTail) return -inverse_normal_tail(1.0 - u);
  return inverse_normal_central(u - 0.5);
}

// In (0, 1), symmetric about one half.
double unit(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

template <class Map>
void fill(RandomKey key, std::uint64_t first, std::span<float> out, Map map) {
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t n = first + i;
    const std::uint64_t block = n / 4;
    const auto words = philox(
        key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0});
    for (std::size_t lane = n % 4; lane < 4 && i < out.size(); ++lane, ++i)
      out[i] = map(unit(words[lane]));
  }
}

// P(|z| <= 2) / 2, and the standard deviation of a standard normal variable cut to [-2, 2].
constexpr double kHalfMass = 0.4772498680518208;
constexpr double kTruncatedStd = 0.8796256610342398;

}  // namespace

RandomKey key_from_seed(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

RandomKey fold(RandomKey key, std::string_view name) {
  const std::uint64_t h = XXH3_64bits(name.data(), name.size());
  return fold(key, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h >> 32), 0x6e616d65u);
}

void fill_normal(RandomKey key, std::uint64_t first, float std, std::span<float> out) {
  fill(key, first, out, [std](double u) { return static_cast<float>(std * inverse_normal(u)); });
}

void fill_truncated_normal(RandomKey key, std::uint64_t first, float std, std::span<float> out) {
  const double scale = std / kTruncatedStd;
  fill(key, first, out, [scale](double u) {
    return static_cast<float>(scale * inverse_normal_central((u - 0.5) * (2.0 * kHalfMass)));
  });
}

}  // namespace dew
