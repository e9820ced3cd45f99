#include "dew/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

const Type kScalar = {DType::f32, {}};

void check_choice(const char* key, const std::string& value,
                  std::initializer_list<const char*> choices) {
  const auto same = [&](const char* choice) { return value == choice; };
  if (std::any_of(choices.begin(), choices.end(), same)) return;
  fail(ErrorCode::usage, format("optimizer.{} = \"{}\", but it must be one of {}", key, value,
                                fmt::join(choices, ", ")));
}

void check_range(const char* key, double value, bool in_range, const char* range) {
  if (in_range && std::isfinite(value)) return;
  fail(ErrorCode::usage, format("optimizer.{} = {}, but it must be {}", key, value, range));
}

void check_not_negative(const char* key, double value) {
  check_range(key, value, value >= 0, "0 or more and finite");
}

void check_fraction(const char* key, double value) {
  check_range(key, value, value >= 0 && value < 1, "0 or more and below 1");
}

// The scalars that all parameters of an update share.
struct UpdateScalars {
  Value lr, c1, c2, scale, commit;
};

// All gradients as one vector. Each is wanted in its parameter's place before it is squared.
Value gradient_norm(Program& program, std::span<const ParamSpec> params) {
  Value total;
  for (const ParamSpec& param : params) {
    const Value squares = sum_squares(program.find_input(registers::gradient(param.name)));
    total = total.valid() ? total + squares : squares;
  }
  return sqrt(total);
}

// min(1, limit / norm), or 1 without a limit.
Value clip_scale(Value limit, Value norm) {
  Program& program = *norm.program;
  const Value one = constant(program, kScalar, 1), zero = constant(program, kScalar, 0);
  const Value limited = less(zero, limit), shrunk = min(one, limit / norm);
  return select(limited, shrunk, one);
}

UpdateScalars make_scalars(Program& program, const Optimizer& o,
                           std::span<const ParamSpec> params) {
  const Value loss = program.input(registers::kLoss, kScalar);
  const Value inv_weight = program.input(registers::kInvWeight, kScalar);
  UpdateScalars s;
  s.lr = program.input(registers::kLr, kScalar);
  const Value limit = program.input(registers::kClipNorm, kScalar);
  if (o.name == "adamw") {
    s.c1 = program.input(registers::kC1, kScalar);
    s.c2 = program.input(registers::kC2, kScalar);
  }
  const Value norm = gradient_norm(program, params);
  const Value has_weight = less(constant(program, kScalar, 0), inv_weight);
  s.scale = clip_scale(limit, norm);
  const Value finite_loss = is_finite(loss), finite_norm = is_finite(norm);
  s.commit = logical_and(logical_and(finite_loss, finite_norm), has_weight);
  program.output(registers::kGradNorm, norm);
  program.output(registers::kCommit, s.commit);
  return s;
}

struct ParamUpdate {
  Value p;
  std::vector<Value> state;  // in the order of state_slots, without the average
};

ParamUpdate update_one(const Optimizer& o, bool decay, Value p, Value g,
                       std::span<const Value> state, const UpdateScalars& s) {
  const UpdateAttrs attrs = {.b1 = o.b1,
                             .b2 = o.b2,
                             .epsilon = o.eps,
                             .weight_decay = decay ? o.weight_decay : 0.0,
                             .momentum = o.momentum};
  if (o.name == "adamw") {
    const AdamW made = adamw(p, state[0], state[1], g, s.lr, s.c1, s.c2, s.scale, s.commit, attrs);
    return {made.p, {made.m, made.v}};
  }
  const Momentum made = o.name == "lion" ? lion(p, state[0], g, s.lr, s.scale, s.commit, attrs)
                                         : sgd(p, state[0], g, s.lr, s.scale, s.commit, attrs);
  return {made.p, {made.m}};
}

void declare_inputs(Program& program, const Optimizer& o, std::span<const ParamSpec> params) {
  for (const ParamSpec& param : params) {
    const Value p = program.input(registers::parameter(param.name), param.type, true);
    program.set_like(program.input(registers::gradient(param.name), param.type, true), p.id);
    for (const StateSlot& slot : state_slots(o)) {
      program.set_like(program.input(slot.prefix + param.name, param.type, true), p.id);
    }
  }
}

void write_update(Program& program, const Optimizer& o, const ParamSpec& param,
                  const UpdateScalars& scalars) {
  const Value p = program.find_input(registers::parameter(param.name));
  const auto output = [&](const std::string& name, Value value) {
    program.set_like(value, p.id);
    program.output(name, value);
  };
  std::vector<Value> state;
  const std::vector<StateSlot> slots = state_slots(o);
  for (const StateSlot& slot : slots) state.push_back(program.find_input(slot.prefix + param.name));
  const Value g = program.find_input(registers::gradient(param.name));
  ParamUpdate made = update_one(o, decays(o, param), p, g, state, scalars);
  if (o.ema_decay > 0) made.state.push_back(ema(state.back(), made.p, scalars.commit, o.ema_decay));
  output(registers::parameter(param.name), made.p);
  for (std::size_t i = 0; i < slots.size(); ++i)
    output(slots[i].prefix + param.name, made.state[i]);
}

}  // namespace

Optimizer adamw(double lr) { return {.name = "adamw", .lr = lr}; }

Optimizer lion(double lr) { return {.name = "lion", .lr = lr}; }

Optimizer sgd(double lr, double momentum) {
  return {.name = "sgd", .lr = lr, .momentum = momentum};
}

void validate(const Optimizer& o) {
  check_choice("name", o.name, {"adamw", "lion", "sgd"});
  check_choice("decay", o.decay, {"no_embeddings", "matrices", "all"});
  check_not_negative("lr", o.lr);
  check_not_negative("weight_decay", o.weight_decay);
  check_not_negative("clip_norm", o.clip_norm);
  check_range("eps", o.eps, o.eps > 0, "above 0 and finite");
  // The update computes in f32: what that cannot hold would become zero or infinite unseen.
  for (const auto& [key, value] : {std::pair{"lr", o.lr},
                                   {"eps", o.eps},
                                   {"clip_norm", o.clip_norm},
                                   {"weight_decay", o.weight_decay}}) {
    const double held = static_cast<double>(static_cast<float>(value));
    check_range(key, value, std::isfinite(held) && (held > 0) == (value > 0),
                "within the range of f32");
  }
  check_fraction("b1", o.b1);
  check_fraction("b2", o.b2);
  check_fraction("momentum", o.momentum);
  check_fraction("ema_decay", o.ema_decay);
}

bool decays(const Optimizer& o, const ParamSpec& param) {
  if (o.decay == "all") return true;
  if (param.kind == ParamKind::embedding) return o.decay == "matrices";
  return param.kind == ParamKind::matrix;
}

std::vector<StateSlot> state_slots(const Optimizer& o) {
  std::vector<StateSlot> slots = {{registers::kFirstMoment, false}};
  if (o.name == "adamw") slots.push_back({registers::kSecondMoment, false});
  if (o.ema_decay > 0) slots.push_back({registers::kAverage, true});
  return slots;
}

BiasCorrection bias_correction(const Optimizer& o, std::int64_t update) {
  const auto n = static_cast<double>(update);
  return {.c1 = 1 / (1 - std::pow(o.b1, n)), .c2 = 1 / (1 - std::pow(o.b2, n))};
}

Program update_program(const Optimizer& o, std::span<const ParamSpec> params) {
  validate(o);
  Program program("update");
  declare_inputs(program, o, params);
  const UpdateScalars scalars = make_scalars(program, o, params);
  for (const ParamSpec& param : params) write_update(program, o, param, scalars);
  return program;
}

}  // namespace dew
