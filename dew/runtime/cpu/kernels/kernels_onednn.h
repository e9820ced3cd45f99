// Kernels whose work is matrix products, made by oneDNN. Each maker takes a step, or says in
// `why_not` what it does not take.
#pragma once

#include <memory>
#include <string>

#include "dew/runtime/cpu/kernel.h"

namespace dew::cpu {

// dot: any DotDims. Inputs a, b, and optionally the addend, which is the same view as the output:
// out += a.b.
std::unique_ptr<Kernel> make_dot(const Step& step, std::string& why_not);

std::unique_ptr<Kernel> make_attention(const Step& step, std::string& why_not);
std::unique_ptr<Kernel> make_attention_grad(const Step& step, std::string& why_not);

// head_loss: inputs h, table, labels, weights, and optionally the addend of d_table, the same view
// as that output.
std::unique_ptr<Kernel> make_head_loss(const Step& step, std::string& why_not);

}  // namespace dew::cpu
