#include "dew/generate/cached_transformer.h"

#include <gtest/gtest.h>

#include <functional>

#include "dew/nn/plain_batch_test_support.h"
#include "dew/runtime/cpu/cpu.h"

namespace dew {
namespace {

using models::CausalTransformer;
using models::TransformerConfig;

constexpr int kVocab = 11;
constexpr int kTokens = 23;

TransformerConfig tiny() {
  return {.vocab_size = kVocab,
          .emb_features = 12,
          .num_layers = 3,
          .num_heads = 4,
          .head_dim = 6,
          .mlp_features = 10};
}

Backend& backend() {
  static const std::unique_ptr<Backend> cpu = cpu_backend(2);
  return *cpu;
}

std::vector<std::int32_t> random_ids(std::uint32_t row, int count) {
  std::vector<std::int32_t> ids;
  for (int t = 0; t < count; ++t)
    ids.push_back(plain::pick(9, row, static_cast<std::uint32_t>(t), kVocab));
  return ids;
}

// Logits behind every token, by the plain loop in double precision.
std::vector<plain::Vec> plain_logits(const TransformerConfig& config, const plain::Params& params,
                                     const std::vector<std::int32_t>& ids) {
  plain::Sequence row;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    row.ids.push_back(ids[t]);
    row.positions.push_back(static_cast<int>(t));
    row.segments.push_back(0);
  }
  const plain::Vec& head =
      params.at(config.tie_embeddings ? "embed_tokens/embedding" : "lm_head/kernel");
  std::vector<plain::Vec> all;
  for (const plain::Vec& state : plain::Model(config, params).states(row)) {
    plain::Vec logits;
    for (std::size_t v = 0; v < kVocab; ++v) {
      double sum = 0;
      for (std::size_t e = 0; e < state.size(); ++e) sum += state[e] * head[v * state.size() + e];
      const double cap = config.logit_softcap;
      logits.push_back(cap > 0 ? cap * std::tanh(sum / cap) : sum);
    }
    all.push_back(std::move(logits));
  }
  return all;
}

void load(CachedTransformer& cached, const plain::Params& params) {
  cached.load([&](const ParamSpec& param, std::int64_t slot, std::span<float> out) {
    const plain::Vec& values = params.at(param.name);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(values[static_cast<std::size_t>(slot) * out.size() + i]);
  });
}

void expect_logits(const CachedTransformer& cached, std::int64_t row, const plain::Vec& want,
                   double tolerance) {
  const std::span<const float> found = cached.logits(row);
  ASSERT_EQ(found.size(), want.size());
  for (std::size_t v = 0; v < want.size(); ++v)
    ASSERT_NEAR(static_cast<double>(found[v]), want[v], tolerance) << "id " << v;
}

// Every prompt length in chunks of every size, then the rest token by token: all logits are those
// of the whole text at once.
void compare(const TransformerConfig& given, DType compute = DType::f32, double tolerance = 2e-4) {
  const CausalTransformer model(given);
  const TransformerConfig& config = model.config();
  const plain::Params params = plain::random_params(model.params(), 5);
  const std::vector<std::int32_t> ids = random_ids(0, kTokens);
  const std::vector<plain::Vec> want = plain_logits(config, params, ids);
  for (const std::int64_t chunk : {1, 3, 8, kTokens}) {
    CachedTransformer cached(model, {.rows = 1, .capacity = kTokens, .chunk = chunk}, compute,
                             backend());
    load(cached, params);
    for (const std::size_t prompt : {1, 2, 3, 4, 7, 8, 9, 16, kTokens}) {
      SCOPED_TRACE("chunk " + std::to_string(chunk) + ", prompt " + std::to_string(prompt));
      cached.reset();
      const Ids first(ids.data(), prompt);
      ASSERT_TRUE(cached.read({&first, 1}));
      expect_logits(cached, 0, want[prompt - 1], tolerance);
      for (std::size_t t = prompt; t < kTokens; ++t) {
        const Ids next(&ids[t], 1);
        ASSERT_TRUE(cached.read({&next, 1}));
        expect_logits(cached, 0, want[t], tolerance);
      }
      EXPECT_EQ(cached.room(0), 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TransformerConfig with(const std::function<void(TransformerConfig&)>& change) {
  TransformerConfig config = tiny();
  change(config);
  return config;
}

TEST(CachedTransformer, EqualsTheWholeText) { compare(tiny()); }
TEST(CachedTransformer, GroupedHeads) {
  compare(with([](auto& c) { c.num_kv_heads = 2; }));
}
TEST(CachedTransformer, OneKvHead) {
  compare(with([](auto& c) { c.num_kv_heads = 1; }));
}
TEST(CachedTransformer, WithoutQkNorm) {
  compare(with([](auto& c) { c.qk_norm = false; }));
}
TEST(CachedTransformer, LayerNormGeluAndBiases) {
  compare(with([](auto& c) {
    c.norm = "layer";
    c.mlp = "gelu";
    c.attention_bias = c.mlp_bias = true;
  }));
}
TEST(CachedTransformer, Geglu) {
  compare(with([](auto& c) { c.mlp = "geglu"; }));
}
TEST(CachedTransformer, LearnedPositions) {
  compare(with([](auto& c) {
    c.positions = "learned";
    c.max_seq_len = kTokens;
  }));
}
TEST(CachedTransformer, HeadOfItsOwn) {
  compare(with([](auto& c) { c.tie_embeddings = false; }));
}
TEST(CachedTransformer, Softcaps) {
  compare(with([](auto& c) {
    c.attention_softcap = 1.5;
    c.logit_softcap = 2;
  }));
}
TEST(CachedTransformer, WindowsThatForget) {
  compare(with([](auto& c) { c.window = 1; }));
  compare(with([](auto& c) { c.window = 5; }));
  compare(with([](auto& c) { c.window_pattern = {3, 0}; }));
}
TEST(CachedTransformer, RopeScalings) {
  compare(with([](auto& c) { c.rope_scaling = {.type = "linear", .factor = 4}; }));
  compare(with([](auto& c) {
    c.rope_scaling = {.type = "llama3", .factor = 8, .original_max_seq_len = 16};
    c.rope_theta = 500;
  }));
}
// As families of other people have it.
TEST(CachedTransformer, OptionsOfFamilies) {
  compare(with([](auto& c) {
    c.qkv_bias = c.scale_embeddings = true;
    c.attention_scale = 0.3;
  }));
  compare(with([](auto& c) {
    c.norm = "rms_plus_one";
    c.norm_placement = "both";
    c.num_kv_heads = 2;
    c.window_pattern = {4, 0};
  }));
  compare(with([](auto& c) {
    c.norm_placement = "after";
    c.qk_norm_over = "all";
  }));
}
TEST(CachedTransformer, OneLayerOfOddSizes) {
  compare({.vocab_size = kVocab,
           .emb_features = 7,
           .num_layers = 1,
           .num_heads = 1,
           .mlp_features = 3,
           .max_seq_len = kTokens,
           .positions = "learned"});
}
// Rounding to bf16 moves logits of a few units by some hundredths; a token that is not seen moves
// them by more.
TEST(CachedTransformer, Brain16) { compare(tiny(), DType::bf16, 0.4); }

// Two texts, one of which waits while the other goes on.
TEST(CachedTransformer, RowsOfDifferentLengths) {
  const CausalTransformer model(with([](auto& c) { c.window_pattern = {4, 0}; }));
  const plain::Params params = plain::random_params(model.params(), 5);
  const std::vector<std::int32_t> ids[] = {random_ids(0, 17), random_ids(1, 9), random_ids(2, 1)};
  std::vector<std::vector<plain::Vec>> want;
  for (const auto& row : ids) want.push_back(plain_logits(model.config(), params, row));
  CachedTransformer cached(model, {.rows = 3, .capacity = 17, .chunk = 4}, DType::f32, backend());
  load(cached, params);
  const auto read = [&](std::size_t a, std::size_t b, std::size_t c) {
    const std::size_t counts[] = {a, b, c};
    std::vector<Ids> next;
    for (std::size_t r = 0; r < 3; ++r) {
      const auto begin = static_cast<std::size_t>(cached.length(static_cast<std::int64_t>(r)));
      next.push_back(Ids(ids[r]).subspan(begin, counts[r]));
    }
    ASSERT_TRUE(cached.read(next));
    for (std::size_t r = 0; r < 3; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      const auto row = static_cast<std::int64_t>(r);
      expect_logits(cached, row, want[r][static_cast<std::size_t>(cached.length(row) - 1)], 2e-4);
    }
  };
  read(9, 2, 1);
  for (int i = 0; i < 3; ++i) read(1, 1, 0);
  read(0, 1, 0);
  read(5, 3, 0);
  EXPECT_EQ(cached.room(0), 0);
  EXPECT_EQ(cached.room(2), 16);
}

TEST(CachedTransformer, StopsBetweenCallsOfALongText) {
  const CausalTransformer model(tiny());
  CachedTransformer cached(model, {.rows = 1, .capacity = 20, .chunk = 4}, DType::f32, backend());
  const std::vector<std::int32_t> ids = random_ids(0, 20);
  const Ids all(ids);
  int asked = 0;
  EXPECT_FALSE(cached.read({&all, 1}, [&] { return ++asked == 3; }));
  EXPECT_EQ(cached.length(0), 12);
  cached.reset();
  EXPECT_TRUE(cached.read({&all, 1}, [] { return false; }));
}

TEST(CachedTransformer, RefusesMoreThanTheModelHasPositions) {
  const CausalTransformer model(with([](auto& c) { c.max_seq_len = 8; }));
  try {
    CachedTransformer(model, {.rows = 1, .capacity = 9}, DType::f32, backend());
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("9 tokens is above model.max_seq_len = 8"),
              std::string::npos);
  }
}

// ---- the programs

// Columns are places and nothing more: the same text, its tokens put in any of them.
TEST(GenerationProgram, AnyColumnsWillDo) {
  const CausalTransformer model(with([](auto& c) { c.window_pattern = {4, 0}; }));
  const plain::Params params = plain::random_params(model.params(), 5);
  const std::vector<std::int32_t> ids = random_ids(0, 9);
  const CacheShape shape{.rows = 1, .capacity = 14};
  const Program prefill = generation_program(model, shape, "prefill", 8, DType::f32);
  const Program decode = generation_program(model, shape, "decode", 1, DType::f32);
  const std::vector<double> places = {13, 2, 7, 0, 9, 12, 1, 5, 3};
  plain::Arrays arrays;
  plain::add_params(arrays, model.params(), params, "params/");
  arrays["cache/keys"] = arrays["cache/values"] = Array({3, 1, 14, 4, 6}, 100.0);
  arrays["cache/positions"] = Array({1, 14});
  arrays["cache/segments"] = Array({1, 14}, -1.0);
  const auto run = [&](const Program& program, std::int64_t first, std::int64_t count) {
    const std::string name = program.name();
    for (const char* part : {"/ids", "/positions", "/segments", "/columns"})
      arrays[name + part] = Array({1, count});
    for (std::int64_t t = 0; t < count; ++t) {
      const auto to = static_cast<std::size_t>(t), from = static_cast<std::size_t>(first + t);
      arrays[name + "/ids"].data[to] = ids[from];
      arrays[name + "/positions"].data[to] = static_cast<double>(from);
      arrays[name + "/columns"].data[to] = places[from];
    }
    arrays[name + "/last"] = Array({1}, static_cast<double>(count - 1));
    for (auto& [output, value] : plain::run(program, arrays)) arrays[output] = value;
    const auto want = plain_logits(model.config(), params, ids);
    EXPECT_LT(plain::worst_difference(arrays.at("logits").data,
                                      want[static_cast<std::size_t>(first + count - 1)]),
              1e-10);
  };
  run(prefill, 0, 8);
  run(decode, 8, 1);
}

// What the printed plan says of the cache: no step writes or copies all of it.
TEST(GenerationProgram, CacheIsUpdatedInPlace) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const CausalTransformer model(tiny());
    const CachedTransformer cached(model, {.rows = 1, .capacity = 4096, .chunk = 8}, compute,
                                   backend());
    const std::string plans = cached.executable().describe();
    EXPECT_EQ(plans.find("output cache"), std::string::npos) << plans;
    EXPECT_EQ(plans.find("stack"), std::string::npos) << plans;
    EXPECT_EQ(plans.find("dense"), std::string::npos) << plans;
    // Nor is there an array of its size beside it.
    const std::int64_t cache = 2 * 3 * 4096 * 24 * byte_size(compute);
    EXPECT_LT(cached.executable().planned_bytes(), cache * 3 / 2) << plans;
  }
}

}  // namespace
}  // namespace dew
