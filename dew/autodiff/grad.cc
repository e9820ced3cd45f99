#include "dew/autodiff/grad.h"

#include "dew/autodiff/scan_grad.h"
#include "dew/autodiff/sweep.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {

Remat parse_remat(const std::string& text) {
  if (text == "none") return Remat::none;
  if (text == "save_list") return Remat::save_list;
  if (text == "full") return Remat::full;
  fail(ErrorCode::usage,
       format("remat is \"{}\"; it is \"none\", \"save_list\" or \"full\"", text));
}

std::vector<Value> gradients(Program& program, Value loss, std::span<const Value> wrt,
                             Remat remat) {
  DEW_CHECK(loss.type() == (Type{DType::f32, {}}),
            "a loss is f32[], not " + to_string(loss.type()));
  Sweep sweep(program, wrt,
              [&](int node, std::span<const Value> cotangents, const std::vector<bool>& needs) {
                return scan_gradient(program, node, cotangents, needs, remat);
              });
  sweep.contribute(loss, constant(program, {DType::f32, {}}, 1.0));
  sweep.run();
  std::vector<Value> out;
  for (const Value& v : wrt) {
    Value g = sweep.total(v.id);
    if (!g.valid()) {
      g = constant(program, cotangent_type(program.info(v)), 0.0);
      program.set_like(g, v.id);
    }
    out.push_back(g);
  }
  return out;
}

}  // namespace dew
