#include <array>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

constexpr std::array kTable = {
    KernelRow{nullptr, "fused", make_fused},
    KernelRow{nullptr, "copy", make_copy},
    KernelRow{&dot_op, "onednn", make_dot},
    KernelRow{&attention_op, "onednn tiles", make_attention},
    KernelRow{&attention_grad_op, "onednn tiles", make_attention_grad},
    KernelRow{&head_loss_op, "onednn tiles", make_head_loss},
    KernelRow{&pad_op, "highway", make_pad},
    KernelRow{&concatenate_op, "highway", make_concatenate},
    KernelRow{&gather_rows_op, "highway", make_gather_rows},
    KernelRow{&scatter_add_rows_op, "highway", make_scatter_add_rows},
    KernelRow{&write_columns_op, "copies", make_write_columns},
    KernelRow{&reduce_sum_op, "highway", make_reduce},
    KernelRow{&reduce_max_op, "highway", make_reduce},
    KernelRow{&row_dot_op, "highway", make_row_dot},
    KernelRow{&sum_squares_op, "highway", make_sum_squares},
    KernelRow{&rms_norm_op, "highway", make_rms_norm},
    KernelRow{&rms_norm_grad_op, "highway", make_rms_norm_grad},
    KernelRow{&layer_norm_op, "highway", make_layer_norm},
    KernelRow{&layer_norm_grad_op, "highway", make_layer_norm_grad},
    KernelRow{&rope_op, "highway", make_rope},
    KernelRow{&random_bits_op, "highway", make_random_bits},
    KernelRow{&dropout_op, "highway", make_dropout},
    KernelRow{&adamw_op, "highway", make_adamw},
    KernelRow{&lion_op, "highway", make_lion},
    KernelRow{&sgd_op, "highway", make_sgd},
    KernelRow{&ema_op, "highway", make_ema},
    KernelRow{&replicas_differ_op, "plain", make_replicas_differ},
};

}  // namespace

std::span<const KernelRow> kernel_table() { return kTable; }

std::unique_ptr<Kernel> make_kernel(const Step& step) {
  std::string refusals;
  for (const KernelRow& row : kTable) {
    if (row.op != step.op) continue;
    std::string why_not;
    if (auto kernel = row.make(step, why_not)) return kernel;
    refusals += format("; {}: {}", row.name, why_not);
  }
  fail(ErrorCode::internal, format("no kernel for {}{}", step.name, refusals));
}

}  // namespace dew::cpu
