// Text after text: reads prompts, then draws and reads token after token.
#pragma once

#include <functional>
#include <vector>

#include "dew/generate/cached_transformer.h"
#include "dew/generate/sampler.h"

namespace dew {

struct GenerateOptions {
  std::int64_t tokens = 0;  // new ones of each text at most
  Sampling sampling = {};
  std::vector<std::int32_t> end_ids = {};  // each ends its text; none: nothing does
  std::int64_t vocab_size = 0;             // ids that may be drawn are below; 0: all of the model's
  std::function<bool()> should_stop = {};  // asked before each token
  // Called with each new token of a row as soon as it is drawn, an end token too.
  std::function<void(std::int64_t row, std::int32_t id)> on_token = {};
};

enum class Finish {
  tokens,   // as many as were asked for
  end,      // an end token, the last of `ids`
  full,     // the cache has no room for the last token
  stopped,  // by should_stop
};

struct Generated {
  std::vector<std::int32_t> ids;  // the new ones
  Finish finish = Finish::tokens;
};

struct GenerateResult {
  std::vector<Generated> texts;  // by row
  double prompt_s = 0;           // until the first tokens were drawn
  double tokens_s = 0;           // from then on
};

// Forgets what the model has read, reads `prompts`, one for each row of its shape, and goes on with
// all of them side by side. Throws ErrorCode::usage on a prompt without ids, with an id outside of
// the vocabulary or longer than the cache, and on options out of range.
GenerateResult generate(CachedTransformer& model, std::span<const Ids> prompts,
                        const GenerateOptions& options);

}  // namespace dew
