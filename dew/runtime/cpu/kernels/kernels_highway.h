// Kernels written with Highway: everything but matrix products. Each maker takes a step, or says in
// `why_not` what it does not take. Include this before Highway's own headers: it names the
// instruction sets that are compiled.
#pragma once

#include <memory>
#include <string>

#include "dew/runtime/cpu/kernel.h"

// AVX2 and AVX-512 (NEON elsewhere). What is older is refused when the program starts, so AVX2 is
// the baseline; the levels beyond AVX-512 BW/DQ/VL would double the code for instructions that
// these kernels have no use for.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_AVX2
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

namespace dew::cpu {

// Step::op is null. A fused group: every pointwise op, alone or in a chain. A copy: no group, one
// input and one output of equal shape and dtype.
std::unique_ptr<Kernel> make_fused(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_copy(const Step& step, std::string& why_not);

// Data movement.
std::unique_ptr<Kernel> make_pad(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_concatenate(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_gather_rows(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_scatter_add_rows(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_write_columns(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_reduce(const Step& step,
                                    std::string& why_not);  // reduce_sum, reduce_max
std::unique_ptr<Kernel> make_row_dot(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_sum_squares(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_rms_norm(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_rms_norm_grad(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_layer_norm(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_layer_norm_grad(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_rope(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_random_bits(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_dropout(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_adamw(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_lion(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_sgd(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_ema(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_replicas_differ(const Step& step, std::string& why_not);

}  // namespace dew::cpu
