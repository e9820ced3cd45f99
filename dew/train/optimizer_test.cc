#include "dew/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dew/base/error.h"
#include "dew/nn/plain_batch_test_support.h"

namespace dew {
namespace {

using plain::Arrays;
using plain::Vec;

// One parameter of each kind, the biases of heads among them.
std::vector<ParamSpec> specs() {
  const auto make = [](const char* name, Dims shape, bool stacked, ParamKind kind) {
    AxisNames axes(shape.size(), "");
    return ParamSpec{.name = name,
                     .type = {DType::f32, std::move(shape)},
                     .axes = std::move(axes),
                     .stack = stacked ? "layers" : "",
                     .init = {},
                     .kind = kind};
  };
  return {make("embed_tokens/embedding", {5, 3}, false, ParamKind::embedding),
          make("layers/mlp/up_proj/kernel", {2, 3, 4}, true, ParamKind::matrix),
          make("layers/attention/q_proj/bias", {2, 2, 2}, true, ParamKind::vector),
          make("layers/mlp_norm/scale", {2, 3}, true, ParamKind::vector),
          make("final_norm/scale", {3}, false, ParamKind::vector)};
}

double norm_of(const Arrays& gradients) {
  double sum = 0;
  for (const auto& [name, g] : gradients) {
    for (const double v : g.data) sum += v * v;
  }
  return std::sqrt(sum);
}

// The state of all parameters, and what an update should make of it, element by element.
struct Loop {
  Optimizer o;
  Arrays p, m, v, e;

  void update(const Arrays& grads, double lr, int n) {
    const double norm = norm_of(grads);
    const double scale = o.clip_norm > 0 ? std::min(1.0, o.clip_norm / norm) : 1.0;
    for (const ParamSpec& spec : specs()) {
      const double decay = decays(o, spec) ? o.weight_decay : 0;
      for (std::size_t i = 0; i < p[spec.name].data.size(); ++i) {
        const double g = scale * grads.at(spec.name).data[i];
        double &w = p[spec.name].data[i], &first = m[spec.name].data[i];
        w -= lr * (change(g, first, v[spec.name].data[i], n) + decay * w);
        e[spec.name].data[i] = o.ema_decay * e[spec.name].data[i] + (1 - o.ema_decay) * w;
      }
    }
  }

  double change(double g, double& first, double& second, int n) const {
    if (o.name == "sgd") return first = o.momentum * first + g;
    if (o.name == "lion") {
      const double u = o.b1 * first + (1 - o.b1) * g;
      first = o.b2 * first + (1 - o.b2) * g;
      return u > 0 ? 1 : u < 0 ? -1 : 0;
    }
    first = o.b1 * first + (1 - o.b1) * g;
    second = o.b2 * second + (1 - o.b2) * g * g;
    return first / (1 - std::pow(o.b1, n)) / (std::sqrt(second / (1 - std::pow(o.b2, n))) + o.eps);
  }
};

Arrays random_arrays(std::uint64_t seed) {
  Arrays out;
  for (const auto& [name, values] : plain::random_params(specs(), seed)) {
    for (const ParamSpec& spec : specs()) {
      if (spec.name == name) out[name] = Array(spec.type.shape);
    }
    out[name].data = values;
  }
  return out;
}

Loop start(const Optimizer& o) {
  Loop loop{.o = o, .p = random_arrays(1), .m = {}, .v = {}, .e = {}};
  loop.e = loop.p;
  for (const ParamSpec& spec : specs())
    loop.m[spec.name] = loop.v[spec.name] = Array(spec.type.shape);
  return loop;
}

// Registers of an update from the state of a loop.
Arrays registers_of(const Loop& loop, const Arrays& grads, double lr, int n) {
  Arrays in;
  const auto add = [&](const char* prefix, const Arrays& arrays) {
    for (const auto& [name, a] : arrays) in[prefix + name] = a;
  };
  add("params/", loop.p);
  add("opt/m/", loop.m);
  add("opt/v/", loop.v);
  add("ema/", loop.e);
  add("grad/", grads);
  const BiasCorrection c = bias_correction(loop.o, n);
  in["lr"] = Array(Dims{}, lr);
  in["c1"] = Array(Dims{}, c.c1);
  in["c2"] = Array(Dims{}, c.c2);
  in["clip_norm"] = Array(Dims{}, loop.o.clip_norm);
  in["loss"] = Array(Dims{}, 1.5);
  in["inv_weight"] = Array(Dims{}, 0.25);
  return in;
}

void compare(const Arrays& out, const std::string& prefix, const Arrays& want) {
  for (const auto& [name, a] : want)
    EXPECT_LT(plain::worst_difference(out.at(prefix + name).data, a.data), 1e-12) << name;
}

void check_three_updates(const Optimizer& o) {
  const Program program = update_program(o, specs());
  verify(program);
  Loop loop = start(o);
  for (int n = 1; n <= 3; ++n) {
    const Arrays grads = random_arrays(10 + static_cast<std::uint64_t>(n));
    const double lr = 0.1 / n;
    const Arrays out = plain::run(program, registers_of(loop, grads, lr, n));
    loop.update(grads, lr, n);
    compare(out, "params/", loop.p);
    compare(out, "opt/m/", loop.m);
    if (o.name == "adamw") compare(out, "opt/v/", loop.v);
    if (o.ema_decay > 0) compare(out, "ema/", loop.e);
    EXPECT_NEAR(out.at("grad_norm").data[0], norm_of(grads), 1e-12);
    EXPECT_EQ(out.at("commit").data[0], 1.0);
  }
}

TEST(Optimizer, UpdatesEqualTheFormulas) {
  for (const char* name : {"adamw", "lion", "sgd"}) {
    for (const char* decay : {"no_embeddings", "matrices", "all"}) {
      for (const double clip : {0.0, 0.5, 100.0}) {
        SCOPED_TRACE(std::string(name) + " " + decay + " " + std::to_string(clip));
        check_three_updates({.name = name,
                             .b1 = 0.8,
                             .b2 = 0.95,
                             .weight_decay = 0.3,
                             .momentum = 0.7,
                             .clip_norm = clip,
                             .ema_decay = clip > 1 ? 0.9 : 0,
                             .decay = decay});
      }
    }
  }
}

TEST(Optimizer, DecayMasks) {
  const std::vector<ParamSpec> all = specs();
  const auto mask = [&](const char* decay) {
    std::string out;
    for (const ParamSpec& p : all) out += decays({.decay = decay}, p) ? 'x' : '.';
    return out;
  };
  EXPECT_EQ(mask("no_embeddings"), ".x...");
  EXPECT_EQ(mask("matrices"), "xx...");
  EXPECT_EQ(mask("all"), "xxxxx");
}

TEST(Optimizer, StateOfEach) {
  const auto prefixes = [](const Optimizer& o) {
    std::string out;
    for (const StateSlot& s : state_slots(o))
      out += s.prefix + (s.starts_as_parameter ? "=p " : "=0 ");
    return out;
  };
  EXPECT_EQ(prefixes(adamw(1)), "opt/m/=0 opt/v/=0 ");
  EXPECT_EQ(prefixes(lion(1)), "opt/m/=0 ");
  EXPECT_EQ(prefixes({.name = "sgd", .ema_decay = 0.5}), "opt/m/=0 ema/=p ");
}

// Selected, not multiplied: everything keeps its bits, NaN in a gradient or not.
TEST(Optimizer, NothingIsCommittedThatIsNotFiniteOrHasNoWeight) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  const auto spoil = {+[](Arrays& in) { in["grad/final_norm/scale"].data[1] = kNan; },
                      +[](Arrays& in) { in["grad/layers/mlp/up_proj/kernel"].data[7] = -kInf; },
                      +[](Arrays& in) { in["loss"].data[0] = kNan; },
                      +[](Arrays& in) { in["loss"].data[0] = kInf; },
                      +[](Arrays& in) { in["inv_weight"].data[0] = 0; }};
  for (const char* name : {"adamw", "lion", "sgd"}) {
    const Optimizer o = {.name = name, .clip_norm = 1, .ema_decay = 0.9};
    const Program program = update_program(o, specs());
    for (const auto change : spoil) {
      Arrays in = registers_of(start(o), random_arrays(2), 0.1, 1);
      change(in);
      const Arrays out = plain::run(program, in);
      EXPECT_EQ(out.at("commit").data[0], 0.0);
      for (const auto& [register_name, a] : out) {
        if (!in.contains(register_name)) continue;
        EXPECT_EQ(a, in.at(register_name)) << register_name;
      }
    }
  }
}

TEST(Optimizer, AZeroGradientIsClippedToZero) {
  const Optimizer o = {.weight_decay = 0, .clip_norm = 1};
  Arrays grads;
  for (const ParamSpec& spec : specs()) grads[spec.name] = Array(spec.type.shape);
  const Loop loop = start(o);
  const Arrays out = plain::run(update_program(o, specs()), registers_of(loop, grads, 0.1, 1));
  EXPECT_EQ(out.at("commit").data[0], 1.0);
  compare(out, "params/", loop.p);
}

TEST(Optimizer, NewStateTakesThePlaceOfTheParameter) {
  Program program = update_program({.ema_decay = 0.9}, specs());
  for (const ParamSpec& spec : specs()) {
    const int p = program.find_input("params/" + spec.name).id;
    EXPECT_EQ(program.info(program.find_input("grad/" + spec.name)).like, p);
    for (const char* prefix : {"params/", "opt/m/", "opt/v/", "ema/"}) {
      EXPECT_EQ(program.info(program.find_output(prefix + spec.name)).like, p) << prefix;
    }
  }
}

TEST(Optimizer, Refusals) {
  const auto refused = [](const Optimizer& o) {
    try {
      validate(o);
    } catch (const Error& e) {
      return e.code() == ErrorCode::usage ? std::string(e.what()) : std::string("another code");
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.name = "adam"}),
            "optimizer.name = \"adam\", but it must be one of adamw, lion, sgd");
  EXPECT_EQ(refused({.lr = -1}), "optimizer.lr = -1, but it must be 0 or more and finite");
  EXPECT_EQ(refused({.b2 = 1}), "optimizer.b2 = 1, but it must be 0 or more and below 1");
  EXPECT_EQ(refused({.eps = 0}), "optimizer.eps = 0, but it must be above 0 and finite");
  EXPECT_EQ(refused({.clip_norm = std::numeric_limits<double>::quiet_NaN()}),
            "optimizer.clip_norm = nan, but it must be 0 or more and finite");
  EXPECT_EQ(refused({.decay = "none"}),
            "optimizer.decay = \"none\", but it must be one of no_embeddings, matrices, all");
  EXPECT_EQ(refused(lion(1e-4)), "accepted");
}

}  // namespace
}  // namespace dew
