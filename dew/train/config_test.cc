#include "dew/train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dew/base/file_test_support.h"
#include "dew/base/format.h"
#include "dew/train/config_fields.h"

namespace dew {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr const char* kMinimal = R"([run]
dir = "runs/x"
steps = 400
[model]
vocab_size = 256
emb_features = 64
num_layers = 2
num_heads = 4
[data]
path = "data/x"
seq_len = 32
global_batch = 16
)";

using Overrides = std::vector<std::string>;

TrainConfig with(const Overrides& overrides) { return parse_config(kMinimal, "c.toml", overrides); }

std::string refused(const std::string& toml, const Overrides& overrides = {}) {
  const std::string message =
      error_of(ErrorCode::usage, [&] { parse_config(toml, "c.toml", overrides); });
  EXPECT_NE(message, "no error") << toml;
  return message;
}

std::string refused_override(const std::string& text) { return refused(kMinimal, {text}); }

TEST(Config, Defaults) {
  const TrainConfig c = with({});
  EXPECT_EQ(c.run.seed, 0);
  EXPECT_EQ(c.run.log_every, 10);
  EXPECT_EQ(c.run.eval_every, 0);
  EXPECT_EQ(c.run.checkpoint_every, 0);
  EXPECT_EQ(c.run.keep, 3);
  EXPECT_EQ(c.run.resume, "auto");
  EXPECT_EQ(c.devices.spec, "cpu");
  EXPECT_EQ(c.layout.min_shard, 65536);
  EXPECT_EQ(c.layout.tolerance, 0.02);
  EXPECT_TRUE(c.data.shuffle);
  EXPECT_FALSE(c.data.accumulate || c.data.micro_batch || c.data.accumulate_full);
  EXPECT_EQ(c.optimizer, Optimizer{});
  EXPECT_EQ(c.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(c.schedule.name, "constant");
  EXPECT_EQ(c.precision.compute, "f32");
  EXPECT_EQ(c.comm.step_timeout, 60);
  EXPECT_EQ(c.comm.start_timeout, 300);
}

TEST(Config, ResolvedFromOtherKeys) {
  const TrainConfig c = with({});
  EXPECT_EQ(c.model.num_kv_heads, 4);
  EXPECT_EQ(c.model.head_dim, 16);
  EXPECT_EQ(c.model.mlp_features, 256);
  EXPECT_EQ(c.model.max_seq_len, 32);
  EXPECT_EQ(c.data.stride, 32);
  EXPECT_EQ(with({"model.num_kv_heads=2", "data.stride=5"}).data.stride, 5);
}

TEST(Config, OverridesAreToml) {
  const TrainConfig c =
      with({"run.dir=runs/kjv-2", "optimizer.lr=1e-3", "optimizer.eps=1e-6", "model.qk_norm=false",
            "model.window_pattern=[8, 0]", "model.rope_scaling={type = 'linear', factor = 2}",
            "layout.rules=[['embed', ['fsdp', 'tensor']], ['mlp', []]]", "data.accumulate=4",
            "optimizer.clip_norm=1", "precision.compute=bf16", "data.path='has spaces'",
            "run.seed=9223372036854775807", "run.steps=1_000"});
  EXPECT_EQ(c.run.dir, "runs/kjv-2");
  EXPECT_EQ(c.optimizer.eps, 1e-6);
  EXPECT_EQ(c.optimizer.clip_norm, 1);
  EXPECT_FALSE(c.model.qk_norm);
  EXPECT_THAT(c.model.window_pattern, ElementsAre(8, 0));
  EXPECT_EQ(c.model.rope_scaling.factor, 2);
  EXPECT_EQ(c.layout.rules, (std::vector<LayoutRule>{{"embed", {"fsdp", "tensor"}}, {"mlp", {}}}));
  EXPECT_EQ(c.data.accumulate, 4);
  EXPECT_EQ(c.data.path, "has spaces");
  EXPECT_EQ(c.run.seed, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(c.run.steps, 1000);
  EXPECT_EQ(with({"model.rope_scaling.type=linear", "model.rope_scaling.factor=4"})
                .model.rope_scaling.factor,
            4);
}

TEST(Config, BareWordsAreStrings) {
  for (const char* text : {"a", "runs/x.y", "../x", "~/x", "a b", "x#1", "/tmp/é"}) {
    EXPECT_EQ(with({std::string("run.dir=") + text}).run.dir, text);
  }
  EXPECT_EQ(with({"run.dir=\"2024\""}).run.dir, "2024");
  EXPECT_EQ(with({"run.dir=a=b"}).run.dir, "a=b");
}

TEST(Config, BadOverrides) {
  const std::vector<std::array<const char*, 2>> cases = {
      {"steps=4", "is not section.key=value"},
      {"run.steps", "is not section.key=value"},
      {"=4", "is not section.key=value"},
      {"run.steps=", "'run.steps=' has no value"},
      {"run.steps=4#00", "command line: run.steps must be an integer, found '4#00'"},
      {"run.steps=1\nrun.dir=2", "must be an integer"},
      {"run.dir=2024", "run.dir must be a string, found 2024"},
      {"run.dir=[1\n]\nx=4", "is not valid TOML"},
      {"model.window_pattern=[1,2", "is not valid TOML"},
      {"model.window_pattern=[1]\n[run]", "there is more after the value"},
      {"run.dir=\xff", "run.dir"},
      {"run={steps=4}", "is not section.key=value"},
      {"run.step=4", "the nearest is run.steps"},
      {"optimizer.lr=fast", "optimizer.lr must be a number, found 'fast'"},
      {"optimizer.lr=true", "must be a number, found true"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(refused_override(text), AllOf(HasSubstr(message), HasSubstr("command line")))
        << text;
  }
  EXPECT_THAT(refused(kMinimal, {"run.seed=1", "run.seed=2"}), HasSubstr("given twice"));
}

TEST(Config, UnknownKeysNameTheNearest) {
  const std::vector<std::array<const char*, 2>> cases = {
      {"optimizer.learning_rte", "optimizer.lr"},
      {"optimizer.learning_rate", "optimizer.lr"},
      {"optimizer.weight_deacy", "optimizer.weight_decay"},
      {"run.step", "run.steps"},
      {"run.lr", "optimizer.lr"},
      {"run.warmup", "schedule.warmup_steps"},
      {"data.batch_size", "data.global_batch"},
      {"model.hidden_size", "model.emb_features"},
      {"model.n_layers", "model.num_layers"},
      {"model.rope_scaling.fator", "model.rope_scaling.factor"},
      {"mesh.tensr", "mesh.tensor"},
      {"optimiser.b1", "optimizer.b1"},
      {"train.precision", ""},
  };
  for (const auto& [key, nearest] : cases) {
    EXPECT_THAT(refused_override(std::string(key) + "=1"),
                HasSubstr(format("unknown key '{}'; the nearest is {}", key, nearest)));
  }
  EXPECT_THAT(refused(std::string(kMinimal) + "[optimizr]\nlr = 1"),
              HasSubstr("c.toml:13: unknown section 'optimizr'; the nearest is [optimizer]"));
  EXPECT_THAT(refused("steps = 3\n" + std::string(kMinimal)),
              HasSubstr("c.toml:1: unknown key 'steps'; the nearest is run.steps"));
  EXPECT_THAT(refused(std::string(kMinimal) + "learning_rte = 1"),
              HasSubstr("c.toml:13: unknown key 'data.learning_rte'"));
  EXPECT_THAT(refused("\"run.steps\" = 3\n" + std::string(kMinimal)),
              HasSubstr("unknown key 'run.steps'"));
  EXPECT_THAT(refused("\"a\\nb\" = 3\n" + std::string(kMinimal)), HasSubstr("unknown key 'a?b'"));
  EXPECT_THAT(refused(std::string(1000, 'k') + " = 3\n" + std::string(kMinimal)),
              HasSubstr("unknown key"));
}

TEST(Config, WrongTypesHaveALine) {
  const std::vector<std::array<const char*, 2>> cases = {
      {"[optimizer]\nlr = \"1e-3\"", "c.toml:14: optimizer.lr must be a number, found '1e-3'"},
      {"[optimizer]\nname = 1", "c.toml:14: optimizer.name must be a string, found 1"},
      {"[precision]\ncompute = [\"f32\"]", "must be a string, found [ 'f32' ]"},
      {"[schedule]\nwarmup_steps = 1.0", "must be an integer, found 1.0"},
      {"stride = 2024-01-01", "c.toml:13: data.stride must be an integer, found 2024-01-01"},
      {"shuffle = 1", "must be true or false, found 1"},
      {"accumulate = \"2\"", "must be an integer, found '2'"},
      {"[layout]\nrules = []", "one rule or more"},
      {"[layout]\nrules = [[\"embed\"]]", "one rule or more"},
      {"[layout]\nrules = [[\"embed\", \"fsdp\"]]", "one rule or more"},
      {"[devices]\nper_process = [1.5]", "an integer or a list"},
      {"stride = {a = 1}", "must be an integer, found"},
  };
  for (const auto& [more, message] : cases) {
    EXPECT_THAT(refused(std::string(kMinimal) + more), HasSubstr(message)) << more;
  }
  EXPECT_THAT(refused("comm = 5\n" + std::string(kMinimal)),
              HasSubstr("comm must be a table of keys, found 5"));
  EXPECT_THAT(refused("[[comm]]\n" + std::string(kMinimal)), HasSubstr("must be a table of keys"));
}

TEST(Config, ValuesOutOfRange) {
  const std::vector<std::array<const char*, 2>> cases = {
      {"run.steps=-5", "run.steps = -5, but it must be at least 0"},
      {"run.keep=-1", "run.keep = -1, but it must be at least 0"},
      {"run.log_every=0", "at least 1"},
      {"run.resume=maybe", "run.resume = \"maybe\", but it must be one of auto, never, must"},
      {"optimizer.b1=1", "optimizer.b1 = 1.0, but it must be at least 0 and below 1"},
      {"optimizer.eps=0", "above 0"},
      {"optimizer.lr=nan", "optimizer.lr = nan"},
      {"optimizer.lr=inf", "optimizer.lr = inf"},
      {"optimizer.lr=-1e-3", "at least 0"},
      {"optimizer.name=adam", "one of adamw, lion, sgd, adafactor, muon"},
      {"layout.tolerance=1.5", "from 0 to 1"},
      {"model.vocab_size=0", "from 1 to 2147483647"},
      {"model.vocab_size=2147483648", "from 1 to 2147483647"},
      {"model.dropout=1", "below 1"},
      {"model.window_pattern=[1, -1]", "model.window_pattern = [1, -1]"},
      {"data.accumulate=0", "data.accumulate = 0, but it must be at least 1"},
      {"data.global_batch=0", "from 1 to 2147483647"},
      {"comm.step_timeout=0", "above 0"},
      {"precision.compute=f16", "one of f32, bf16"},
      {"devices.spec=cpu:0", "\"cpu\" or \"cpu:\" and a number"},
      {"devices.spec=cpu:8x", "\"cpu\" or \"cpu:\" and a number"},
      {"devices.spec=gpu", "\"cpu\" or \"cpu:\" and a number"},
      {"layout.rules=[[\"embed\", [\"fdsp\"]]]",
       "layout.rules: 'fdsp' is no mesh axis, the nearest is 'fsdp'"},
      {"layout.rules=[[\"embeds\", [\"fsdp\"]]]",
       "layout.rules: 'embeds' is no logical name, the nearest is 'embed'"},
      {"layout.rules=[[\"layers\", [\"fsdp\"]]]", "layers can be split over stage only"},
      {"run.steps=9223372036854775808", "run.steps"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(refused_override(text), AllOf(HasSubstr(message), HasSubstr("command line")))
        << text;
  }
  EXPECT_THAT(refused(std::string(kMinimal) + "[optimizer]\nb2 = 2"),
              HasSubstr("c.toml:14: optimizer.b2 = 2.0"));
}

// The one fault of a value that is none of its form.
TEST(Config, ParametersOnDataAreRefusedByTheLayout) {
  try {
    with({"layout.rules=[['embed', ['data']]]"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::layout_refused);
    EXPECT_THAT(
        error.what(),
        HasSubstr("command line: layout.rules: rule 'embed: data' puts parameters on data"));
  }
}

// What the model's own code finds wrong has a line as well.
TEST(Config, TheModelIsChecked) {
  EXPECT_THAT(refused_override("model.num_heads=5"),
              HasSubstr("command line: model.num_heads = 5 does not divide"));
  EXPECT_THAT(refused_override("model.num_kv_heads=3"),
              HasSubstr("command line: model.num_kv_heads = 3"));
  std::string toml = kMinimal;
  toml.replace(toml.find("num_heads = 4"), 13, "num_heads = 7");
  EXPECT_THAT(refused(toml), HasSubstr("c.toml:8: model.num_heads = 7"));
}

TEST(Config, ConflictsAreRefused) {
  EXPECT_THAT(refused(kMinimal, {"data.accumulate=2", "data.micro_batch=4"}),
              HasSubstr("data.accumulate = 2 and data.micro_batch = 4 are both given"));
  EXPECT_THAT(refused_override("model.max_seq_len=16"),
              HasSubstr("data.seq_len = 32 is above model.max_seq_len = 16"));
  const std::vector<std::string> idle = {"optimizer.momentum=0.5",
                                         "schedule.final_fraction=0.1",
                                         "schedule.decay_fraction=0.2",
                                         "model.rope_scaling.factor=2",
                                         "model.rope_scaling.low_freq_factor=2",
                                         "model.rope_scaling.high_freq_factor=8",
                                         "model.rope_scaling.original_max_seq_len=8"};
  for (const std::string& text : idle) {
    EXPECT_THAT(refused_override(text), HasSubstr("has no effect: it is read only with")) << text;
  }
  EXPECT_THAT(refused(kMinimal, {"optimizer.name=sgd", "optimizer.b1=0.5"}),
              HasSubstr("optimizer.b1 = 0.5 has no effect"));
  EXPECT_THAT(refused(kMinimal, {"optimizer.name=lion", "optimizer.eps=1e-6"}),
              HasSubstr("optimizer.eps"));
  EXPECT_THAT(refused(kMinimal, {"model.positions=learned", "model.rope_theta=5"}),
              HasSubstr("model.rope_theta"));
  with({"optimizer.name=sgd", "optimizer.momentum=0.5", "schedule.name=linear",
        "schedule.final_fraction=0.1"});
}

// Its library reads past the end of a table for many of them elsewhere.
TEST(Config, CharactersBeyondAsciiStandInStringsAndCommentsAlone) {
  for (const char* fine : {"# \u00e9\n", "[run]\ndir = \"\u00e9\" # \u0416",
                           "[run]\ndir = '\\' # \u00e9", "[run]\ndir = \"\"\"a\n\u00e9\"\"\""}) {
    try {
      parse_config(fine, "x.toml");
      ADD_FAILURE() << "complete";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("beyond ASCII"), std::string::npos) << e.what();
    }
  }
  for (const char* wrong :
       {"\u00e9 = 1", "\n\n[run]\ndir = \"a\" \u00e9", "[\u0416]", "[run]\ndir = '\\' \u00e9"}) {
    try {
      parse_config(wrong, "x.toml");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("beyond ASCII"), std::string::npos) << e.what();
    }
  }
}

TEST(Config, WhatIsNotBuiltIsSaid) {
  for (const char* text : {"mesh.stage=2", "mesh.sequence=2", "mesh.microbatches=4",
                           "mesh.replicas=2", "optimizer.name=adafactor", "optimizer.name=muon",
                           "model.experts=8", "model.router_z=0.1", "mesh.schedule=zb1"}) {
    const std::string key = std::string(text).substr(0, std::string(text).find('='));
    EXPECT_THAT(refused_override(text), AllOf(HasSubstr("is not built yet"), HasSubstr(key)))
        << text;
  }
  with({"devices.spec=cpu:1", "mesh.fsdp=1", "comm.step_timeout=5", "layout.min_shard=1"});
}

TEST(Config, RequiredKeys) {
  EXPECT_THAT(refused(""), HasSubstr("c.toml: run.dir is missing"));
  for (const char* key : {"steps", "vocab_size", "emb_features", "num_layers", "num_heads", "path",
                          "seq_len", "global_batch"}) {
    std::string toml = kMinimal;
    const std::size_t at = toml.find("\n" + std::string(key) + " = ") + 1;
    toml.erase(at, toml.find('\n', at) + 1 - at);
    EXPECT_THAT(refused(toml), HasSubstr(std::string(key) + " is missing")) << key;
  }
}

TEST(Config, BrokenFiles) {
  EXPECT_THAT(refused("[run\n"), HasSubstr("c.toml:1: not valid TOML"));
  EXPECT_THAT(refused("[run]\nsteps = 1\nsteps = 2"), HasSubstr("c.toml:3: not valid TOML"));
  EXPECT_THAT(refused("[run]\n[run]\n"), HasSubstr("c.toml:2"));
  EXPECT_THAT(refused("[run]\ndir = \"\xff\xfe\""), HasSubstr("c.toml:2"));
  EXPECT_THAT(refused(std::string("[run]\n\0dir", 10)), HasSubstr("c.toml:2"));
  EXPECT_THAT(refused("x = " + std::string(100'000, '[')), HasSubstr("not valid TOML"));
  for (const char c : std::string(kMinimal)) refused(std::string(kMinimal) + c + "{");
  const TemporaryDirectory dir;
  const auto load = [](const Path& path) {
    return error_of(ErrorCode::usage, [&] { load_config(path); });
  };
  EXPECT_THAT(load(dir / "no.toml"), HasSubstr("No such file"));
  EXPECT_THAT(load(dir.path()), HasSubstr("Is a directory"));
  write_text(dir / "huge.toml", std::string(2'000'000, '#'));
  EXPECT_THAT(load(dir / "huge.toml"), HasSubstr("is larger than"));
  write_text(dir / "empty.toml", "");
  EXPECT_THAT(load(dir / "empty.toml"), HasSubstr("run.dir is missing"));
  write_text(dir / "good.toml", "\xef\xbb\xbf" + std::string(kMinimal));
  EXPECT_EQ(load_config(dir / "good.toml"), with({}));
}

// ---- printing ----

// Another valid value for a field, with whatever else it needs.
Overrides changed(const std::string& key, const ConfigField& field) {
  static const std::map<std::string, Overrides> special = {
      {"run.dir", {"run.dir='a \"quoted\" \\ name\t\u00e4'"}},
      {"model.emb_features", {"model.emb_features=32"}},
      {"model.num_heads", {"model.num_heads=2"}},
      {"model.num_kv_heads", {"model.num_kv_heads=2"}},
      {"model.head_dim", {"model.head_dim=8"}},
      {"model.max_seq_len", {"model.max_seq_len=64"}},
      {"model.rope_theta", {"model.rope_theta=1234.5678901234567"}},
      {"model.window_pattern", {"model.window_pattern=[4, 0]"}},
      {"model.rope_scaling.factor", {"model.rope_scaling={type='linear', factor=2.5}"}},
      {"model.rope_scaling.type", {"model.rope_scaling={type='linear', factor=2.5}"}},
      {"data.seq_len", {"data.seq_len=16"}},
      {"layout.rules", {"layout.rules=[[\"embed\", [\"fsdp\", \"tensor\"]], [\"mlp\", []]]"}},
      {"optimizer.momentum", {"optimizer.name=sgd", "optimizer.momentum=0.25"}},
      {"schedule.final_fraction", {"schedule.name=linear", "schedule.final_fraction=0.25"}},
      {"schedule.decay_fraction",
       {"schedule.name=warmup_stable_decay", "schedule.decay_fraction=0.25"}},
  };
  if (special.contains(key)) return special.at(key);
  if (key.starts_with("model.rope_scaling.")) {
    return {
        "model.rope_scaling={type='llama3', factor=8, low_freq_factor=2, high_freq_factor=5, "
        "original_max_seq_len=9}"};
  }
  if (key == "run.keep_best") return {key + "=7", "run.eval_every=7"};
  TrainConfig c = with({});
  const ConfigSlot slot = field.slot(c);
  if (std::holds_alternative<bool*>(slot))
    return {key + (*std::get<bool*>(slot) ? "=false" : "=true")};
  if (std::holds_alternative<double*>(slot)) return {key + "=0.123456789012345678"};
  if (std::holds_alternative<std::string*>(slot)) {
    return {key + "=" +
            (field.choices.empty() ? "other" : std::string(words(field.choices).back()))};
  }
  return {key + "=7"};
}

TEST(Config, EveryKeyChangesAndPrintsBack) {
  const TrainConfig defaults = with({});
  EXPECT_EQ(parse_config(to_toml(defaults), "printed"), defaults);
  int changed_keys = 0;
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      const std::string key = full_key(section, field);
      const bool unbuilt = section.name == "devices" || section.name == "mesh";
      if (unbuilt || key == "model.name") continue;
      Overrides overrides = changed(key, field);
      if (key == "optimizer.name") overrides = {"optimizer.name=lion"};
      const TrainConfig c = with(overrides);
      EXPECT_FALSE(c == defaults) << key;
      const std::vector<ConfigChange> changes = config_changes(defaults, c);
      EXPECT_TRUE(std::ranges::any_of(changes, [&](const auto& change) {
        return change.key == key;
      })) << key;
      EXPECT_EQ(parse_config(to_toml(c), "printed"), c) << key;
      EXPECT_EQ(parse_model(model_toml(c.model), "printed"), c.model) << key;
      ++changed_keys;
    }
  }
  EXPECT_GT(changed_keys, 60);
}

TEST(Config, EveryChoiceIsTakenByWhoeverUsesIt) {
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      for (const std::string_view choice : words(field.choices)) {
        if (choice == "adafactor" || choice == "muon") continue;
        Overrides overrides = {format("{}={}", full_key(section, field), choice)};
        if (choice == "llama3") overrides.push_back("model.rope_scaling.original_max_seq_len=32");
        with(overrides);
      }
    }
  }
}

// Printing an unresolved config gives the resolved one.
TEST(Config, PrintsResolved) {
  TrainConfig c;
  EXPECT_NE(error_of(ErrorCode::usage, [&] { to_toml(c); }), "no error");
  c.run = {.dir = "x", .seed = 1, .steps = 5, .init_from = {}};
  c.model.vocab_size = 16;
  c.model.emb_features = 8;
  c.model.num_layers = c.model.num_heads = 1;
  c.data.path = "y";
  c.data.seq_len = 4;
  c.data.global_batch = 2;
  EXPECT_EQ(parse_config(to_toml(c), "printed"), resolved(c));
  EXPECT_THAT(to_toml(c), HasSubstr("mlp_features = 32\n"));
  EXPECT_THAT(to_toml(c), HasSubstr("# accumulate is not set\n"));
}

TEST(Config, ModelsOfCheckpoints) {
  EXPECT_THAT(model_toml(with({}).model),
              AllOf(HasSubstr("[model]\nname = \"causal_transformer\"\n"),
                    HasSubstr("\n[model.rope_scaling]\n")));
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [] { parse_model("[model]\nvocab = 1", "m"); }),
              HasSubstr("m:2: unknown key 'model.vocab'"));
  EXPECT_NE(error_of(ErrorCode::checkpoint, [] { parse_model("", "m"); }), "no error");
}

TEST(Config, SetValuesOfSomeSections) {
  TrainConfig c;
  const std::vector<std::string_view> sections = {"optimizer", "precision"};
  set_values(c, Overrides{"optimizer.lr=0.5", "precision.compute=bf16"}, sections);
  EXPECT_EQ(c.optimizer.lr, 0.5);
  EXPECT_EQ(c.precision.compute, "bf16");
  const auto message = [&](const std::string& text) {
    return error_of(ErrorCode::usage, [&] { set_values(c, Overrides{text}, sections); });
  };
  EXPECT_THAT(message("run.steps=3"), HasSubstr("only keys of optimizer, precision"));
  EXPECT_THAT(message("optimizer.lr=-1"), HasSubstr("at least 0"));
  EXPECT_THAT(message("optimizer.rate=-1"), HasSubstr("nearest is optimizer.lr"));
}

TEST(Config, ChangesKnowWhatAResumeMakesOfThem) {
  const std::vector<ConfigChange> changes = config_changes(
      with({}), with({"run.seed=1", "run.steps=500", "run.dir=moved", "optimizer.lr=2e-3",
                      "optimizer.b1=0.8", "schedule.warmup_steps=5", "data.global_batch=8",
                      "data.accumulate=2", "model.remat=full"}));
  std::vector<std::string> lines;
  for (const ConfigChange& c : changes) {
    const char* what[] = {"free", "noted", "refused"};
    lines.push_back(
        format("{}: {} -> {} {}", c.key, c.before, c.now, what[static_cast<int>(c.on_resume)]));
  }
  EXPECT_THAT(lines,
              ElementsAre("run.dir: \"runs/x\" -> \"moved\" free", "run.seed: 0 -> 1 refused",
                          "run.steps: 400 -> 500 noted", "model.remat: \"none\" -> \"full\" free",
                          "data.global_batch: 16 -> 8 noted", "data.accumulate:  -> 2 noted",
                          "optimizer.lr: 0.001 -> 0.002 noted", "optimizer.b1: 0.9 -> 0.8 refused",
                          "schedule.warmup_steps: 0 -> 5 noted"));
  EXPECT_THAT(config_changes(with({}), with({})), IsEmpty());
}

}  // namespace
}  // namespace dew
