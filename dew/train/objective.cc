#include "dew/train/objective.h"

#include <cmath>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {

LMObjective::LMObjective(models::CausalTransformer model, const LMObjectiveOptions& options)
    : model_(std::move(model)), options_(options) {
  const std::int64_t most = model_.config().max_seq_len;
  if (options.seq_len < 1)
    fail(ErrorCode::usage, format("seq_len = {}, but it must be 1 or more", options.seq_len));
  if (most > 0 && options.seq_len > most) {
    fail(ErrorCode::usage,
         format("seq_len = {} is above model.max_seq_len = {}", options.seq_len, most));
  }
  const float held = static_cast<float>(options.z_loss);  // what programs compute with
  if (!(options.z_loss >= 0) || !std::isfinite(held) || (held > 0) != (options.z_loss > 0)) {
    fail(ErrorCode::usage,
         format("objective.z_loss = {}, but it must be 0 or more and within the range of f32",
                options.z_loss));
  }
}

LMLoss LMObjective::train_loss(const ParamValues& params, const BatchValues& batch,
                               Value inv_weight, DType compute) const {
  return loss(params, batch, mul(batch.weights, inv_weight), compute, true);
}

LMLoss LMObjective::eval_loss(const ParamValues& params, const BatchValues& batch,
                              DType compute) const {
  return loss(params, batch, batch.weights, compute, false);
}

Value LMObjective::logits(const ParamValues& params, const BatchValues& batch,
                          DType compute) const {
  const models::TransformerOutputs out = forward(params, batch, compute, false);
  return dew::logits(out.states, out.table, model_.config().logit_softcap);
}

models::TransformerOutputs LMObjective::forward(const ParamValues& params, const BatchValues& b,
                                                DType compute, bool training) const {
  return model_.forward(
      {.params = params,
       .ids = b.ids,
       .positions = b.positions,
       .segments = b.segments,
       .counters =
           {.key = b.key, .layer = {}, .step = b.step, .row_ids = b.row_ids, .columns = b.columns},
       .compute = compute,
       .training = training});
}

LMLoss LMObjective::loss(const ParamValues& params, const BatchValues& b, Value weights,
                         DType compute, bool training) const {
  const models::TransformerOutputs out = forward(params, b, compute, training);
  const HeadLoss head = head_loss(
      out.states, out.table, b.labels, weights,
      {.z_loss = options_.z_loss, .softcap = model_.config().logit_softcap, .gradients = training});
  return {.loss = head.loss, .nll = head.nll, .correct = head.correct};
}

}  // namespace dew
