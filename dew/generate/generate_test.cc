#include "dew/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dew/base/error.h"
#include "dew/runtime/cpu/cpu.h"

namespace dew {
namespace {

using models::CausalTransformer;

constexpr std::int64_t kVocab = 19;

class Generate : public testing::Test {
 protected:
  Generate()
      : backend_(cpu_backend(2)),
        model_({.vocab_size = kVocab, .emb_features = 12, .num_layers = 2, .num_heads = 2}) {}

  CachedTransformer cached(std::int64_t rows, std::int64_t capacity, std::int64_t chunk = 4) {
    CachedTransformer made(model_, {.rows = rows, .capacity = capacity, .chunk = chunk}, DType::f32,
                           *backend_);
    made.load([](const ParamSpec& param, std::int64_t slot, std::span<float> out) {
      init_part(param, key_from_seed(3), slot, 0, out);
      for (float& x : out) x *= 2;  // far from even
    });
    return made;
  }

  Generated one(const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                std::int64_t capacity = 40, std::int64_t chunk = 4) {
    CachedTransformer model = cached(1, capacity, chunk);
    const Ids ids(prompt);
    return generate(model, {&ids, 1}, options).texts[0];
  }

  std::unique_ptr<Backend> backend_;
  CausalTransformer model_;
};

// Each token is the largest score behind the whole text so far, read anew.
TEST_F(Generate, GreedyIsTheArgmaxOfTheWholeText) {
  const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5};
  const Generated found = one(prompt, {.tokens = 20, .sampling = {.temperature = 0}});
  ASSERT_EQ(found.ids.size(), 20u);
  EXPECT_EQ(found.finish, Finish::tokens);
  CachedTransformer whole = cached(1, 40, 40);
  std::vector<std::int32_t> text = prompt;
  for (const std::int32_t id : found.ids) {
    whole.reset();
    const Ids ids(text);
    whole.read({&ids, 1});
    const std::span<const float> scores = whole.logits(0);
    EXPECT_EQ(id, std::ranges::max_element(scores) - scores.begin());
    text.push_back(id);
  }
}

TEST_F(Generate, SeedsDecide) {
  const GenerateOptions options{.tokens = 30, .sampling = {.seed = 7}};
  const auto ids = one({2}, options).ids;
  EXPECT_EQ(one({2}, options).ids, ids);
  EXPECT_EQ(one({2}, options, 100, 1).ids, ids);  // of a larger cache too
  EXPECT_NE(one({2}, {.tokens = 30, .sampling = {.seed = 8}}).ids, ids);
}

TEST_F(Generate, EndTokenEnds) {
  const GenerateOptions plain{.tokens = 30, .sampling = {.seed = 7}};
  const auto ids = one({2}, plain).ids;
  const std::int32_t end = ids[4];
  const auto first = static_cast<std::size_t>(std::ranges::find(ids, end) - ids.begin());
  GenerateOptions options = plain;
  options.end_ids = {end};
  const Generated found = one({2}, options);
  EXPECT_EQ(found.finish, Finish::end);
  EXPECT_EQ(found.ids,
            std::vector(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first) + 1));
}

// The last token needs no place of its own.
TEST_F(Generate, FullCache) {
  const Generated found = one({1, 2, 3}, {.tokens = 100}, 8);
  EXPECT_EQ(found.finish, Finish::full);
  EXPECT_EQ(found.ids.size(), 6u);
  const Generated fits = one({1, 2, 3}, {.tokens = 6}, 8);
  EXPECT_EQ(fits.finish, Finish::tokens);
  EXPECT_EQ(fits.ids, found.ids);
  EXPECT_EQ(one({1, 2, 3}, {.tokens = 2}, 3).ids.size(), 1u);
}

TEST_F(Generate, OnlyIdsOfTheTokenizer) {
  for (const double temperature : {0.0, 3.0}) {
    const Generated found =
        one({1}, {.tokens = 39, .sampling = {.temperature = temperature}, .vocab_size = 5});
    EXPECT_LT(*std::ranges::max_element(found.ids), 5);
  }
}

TEST_F(Generate, TokensAreToldAsTheyCome) {
  std::vector<std::int32_t> told;
  GenerateOptions options{.tokens = 9};
  options.on_token = [&](std::int64_t row, std::int32_t id) {
    EXPECT_EQ(row, 0);
    told.push_back(id);
  };
  EXPECT_EQ(one({1}, options).ids, told);
}

TEST_F(Generate, Stops) {
  for (const int before : {1, 2, 6}) {
    int asked = 0;
    GenerateOptions options{.tokens = 30};
    options.should_stop = [&] { return ++asked == before; };
    const Generated found = one({1, 2, 3, 4, 5, 6}, options);  // two calls for the prompt
    EXPECT_EQ(found.finish, Finish::stopped);
    EXPECT_EQ(found.ids.size(), before < 3 ? 0u : static_cast<std::size_t>(before - 2));
  }
}

// Texts side by side, of different prompts and ends, are what they are alone.
TEST_F(Generate, SeveralTexts) {
  const std::vector<std::int32_t> prompts[] = {{1, 2, 3, 4, 5, 6, 7}, {4}, {9, 9}};
  GenerateOptions options{.tokens = 12, .sampling = {.temperature = 0}};
  options.end_ids = {one(prompts[1], options).ids[5]};
  std::vector<Generated> want;
  for (const auto& prompt : prompts) want.push_back(one(prompt, options, 15));
  CachedTransformer model = cached(3, 15);
  const std::vector<Ids> rows(std::begin(prompts), std::end(prompts));
  for (int again = 0; again < 2; ++again) {
    const GenerateResult found = generate(model, rows, options);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(found.texts[r].ids, want[r].ids) << r;
      EXPECT_EQ(found.texts[r].finish, want[r].finish) << r;
    }
  }
}

TEST_F(Generate, RowsDrawOnTheirOwn) {
  CachedTransformer model = cached(2, 40);
  const std::vector<std::int32_t> prompt = {5};
  const std::vector<Ids> rows(2, Ids(prompt));
  const GenerateResult found = generate(model, rows, {.tokens = 20});
  EXPECT_NE(found.texts[0].ids, found.texts[1].ids);
}

TEST_F(Generate, Refusals) {
  const auto expect = [&](const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                          const std::string& text) {
    try {
      one(prompt, options, 4);
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect({}, {.tokens = 1}, "no tokens");
  expect({1, 19}, {.tokens = 1}, "id 19 of the prompt is outside the model's vocabulary of 19");
  expect({-1}, {.tokens = 1}, "id -1");
  expect({1, 2, 3, 4, 5}, {.tokens = 1}, "5 tokens, and there is room for 4");
  expect({1}, {.tokens = 0}, "tokens = 0");
  expect({1}, {.tokens = 1, .sampling = {.top_p = 2}}, "top-p = 2");
  expect({1}, {.tokens = 1, .vocab_size = 20}, "below 20");
}

}  // namespace
}  // namespace dew
