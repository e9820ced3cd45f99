#include "dew/generate/generate.h"

#include <algorithm>
#include <chrono>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_prompt(const CachedTransformer& model, Ids prompt) {
  if (prompt.empty()) {
    fail(ErrorCode::usage, "the prompt has no tokens: a model goes on from one at least");
  }
  const std::int64_t vocabulary = model.model().config().vocab_size;
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= vocabulary) {
      fail(ErrorCode::usage,
           format("id {} of the prompt is outside the model's vocabulary of {}", id, vocabulary));
    }
  }
  if (const std::int64_t most = model.shape().capacity;
      static_cast<std::int64_t>(prompt.size()) > most) {
    fail(ErrorCode::usage,
         format("the prompt has {} tokens, and there is room for {}", prompt.size(), most));
  }
}

void check(const CachedTransformer& model, std::span<const Ids> prompts,
           const GenerateOptions& options) {
  const std::int64_t vocabulary = model.model().config().vocab_size;
  DEW_CHECK(static_cast<std::int64_t>(prompts.size()) == model.shape().rows,
            "prompts of another batch");
  if (options.tokens < 1)
    fail(ErrorCode::usage, format("tokens = {}, but it must be 1 or more", options.tokens));
  if (options.vocab_size < 0 || options.vocab_size > vocabulary) {
    fail(ErrorCode::usage,
         format("ids below {} may be drawn, but the model has {}", options.vocab_size, vocabulary));
  }
  for (const Ids prompt : prompts) check_prompt(model, prompt);
}

class Generation {
 public:
  Generation(CachedTransformer& model, std::span<const Ids> prompts, const GenerateOptions& options)
      : model_(model), options_(options), next_(prompts.begin(), prompts.end()) {
    result_.texts.resize(prompts.size());
    going_.assign(prompts.size(), true);
    for (std::size_t r = 0; r < prompts.size(); ++r)
      samplers_.emplace_back(options.sampling, static_cast<std::uint32_t>(r));
  }

  GenerateResult run() {
    model_.reset();
    bool first = true;
    for (Clock::time_point start = Clock::now(); any_going();) {
      if (asked_to_stop() || !model_.read(next_, options_.should_stop)) {
        stop();
        break;
      }
      for (std::size_t r = 0; r < next_.size(); ++r) draw(r);
      (first ? result_.prompt_s : result_.tokens_s) = seconds_since(start);
      if (first) start = Clock::now();
      first = false;
    }
    return std::move(result_);
  }

 private:
  bool any_going() const { return std::ranges::find(going_, true) != going_.end(); }
  bool asked_to_stop() const { return options_.should_stop && options_.should_stop(); }

  void stop() {
    for (std::size_t r = 0; r < going_.size(); ++r) {
      if (going_[r]) result_.texts[r].finish = Finish::stopped;
    }
  }

  void draw(std::size_t r) {
    next_[r] = {};
    if (!going_[r]) return;
    const auto row = static_cast<std::int64_t>(r);
    std::span<const float> scores = model_.logits(row);
    if (options_.vocab_size > 0)
      scores = scores.first(static_cast<std::size_t>(options_.vocab_size));
    Generated& text = result_.texts[r];
    const std::int32_t id = samplers_[r].next(scores);
    text.ids.push_back(id);
    if (options_.on_token) options_.on_token(row, id);
    going_[r] = false;
    if (std::ranges::find(options_.end_ids, id) != options_.end_ids.end()) {
      text.finish = Finish::end;
    } else if (static_cast<std::int64_t>(text.ids.size()) == options_.tokens) {
      text.finish = Finish::tokens;
    } else if (model_.room(row) == 0) {
      text.finish = Finish::full;
    } else {
      going_[r] = true;
      next_[r] = Ids(&text.ids.back(), 1);
    }
  }

  CachedTransformer& model_;
  const GenerateOptions& options_;
  std::vector<Ids> next_;  // to read, by row
  std::vector<bool> going_;
  std::vector<Sampler> samplers_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(CachedTransformer& model, std::span<const Ids> prompts,
                        const GenerateOptions& options) {
  check(model, prompts, options);
  return Generation(model, prompts, options).run();
}

}  // namespace dew
