// The language model's objective: predict each token's label; the loss is a sum over weighted
// tokens.
//
// Division is by one number a step, the weight W of all its tokens, and happens before the sum: the
// weights of a micro step are multiplied by 1/W, so the sum over micro steps, rows and devices is
// the step's loss however it is cut.
#pragma once

#include "dew/nn/transformer.h"

namespace dew {

struct LMObjectiveOptions {
  std::int64_t seq_len =
      0;              // tokens of a row that are read; its labels are the same row one token on
  double z_loss = 0;  // adds z_loss * lse^2 a token
};

// What one micro step, or one batch of an evaluation, reads. b rows, t columns; pads are legal
// tokens of weight 0 in segments of their own below 0.
struct BatchValues {
  Value ids, labels;          // i32[b, t]
  Value weights;              // f32[b, t], 0 or more
  Value positions, segments;  // i32[b, t]
  Value row_ids, columns;     // i32[b], -1 on pads; i32[t]
  Value key, step;            // u32[2], i32[]
};

// f32[] each, sums over weighted tokens: loss = nll + z-loss, nll = -log p(label), correct = label
// has the largest logit.
struct LMLoss {
  Value loss, nll, correct;
};

class LMObjective {
 public:
  // Throws ErrorCode::usage if the model has no positions for rows of that length.
  LMObjective(models::CausalTransformer model, const LMObjectiveOptions& options);

  const models::CausalTransformer& model() const { return model_; }
  const std::vector<ParamSpec>& params() const { return model_.params(); }
  const LMObjectiveOptions& options() const { return options_; }

  // Training: with dropout, each token weighing weight / W; `loss` is what to differentiate.
  LMLoss train_loss(const ParamValues& params, const BatchValues& batch, Value inv_weight,
                    DType compute) const;
  // Evaluation: no dropout, weights as they are.
  LMLoss eval_loss(const ParamValues& params, const BatchValues& batch, DType compute) const;
  // What eval_loss sees: f32[b, t, vocab], capped.
  Value logits(const ParamValues& params, const BatchValues& batch, DType compute) const;

 private:
  models::TransformerOutputs forward(const ParamValues& params, const BatchValues& batch,
                                     DType compute, bool training) const;
  LMLoss loss(const ParamValues& params, const BatchValues& batch, Value weights, DType compute,
              bool training) const;

  models::CausalTransformer model_;
  LMObjectiveOptions options_;
};

}  // namespace dew
