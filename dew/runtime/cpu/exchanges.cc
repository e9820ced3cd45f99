#include "dew/runtime/cpu/exchanges.h"

#include <limits>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew::cpu {
namespace {

comm::Pattern pattern_of(const OpDef* op) {
  if (op == &start_all_reduce_op) return comm::Pattern::all_reduce;
  if (op == &start_all_gather_op) return comm::Pattern::all_gather;
  if (op == &start_reduce_scatter_op) return comm::Pattern::reduce_scatter;
  DEW_CHECK(op == &start_all_to_all_op, "no exchange");
  return comm::Pattern::all_to_all;
}

}  // namespace

// A step that waits comes behind the one that starts.
int Exchanges::add(const Step& step, const std::string& program) {
  const auto [known, fresh] =
      numbers_.try_emplace({program, step.exchange}, static_cast<int>(all_.size()));
  if (!fresh) return known->second;
  const auto& group = std::get<GroupAttrs>(step.attrs);
  comm::Exchange e{.pattern = pattern_of(step.op),
                   .dtype = step.inputs[0].type.dtype,
                   .count = step.inputs[0].type.elements(),
                   .group = group_of(group.atoms),
                   .name = program + " " + step.name.substr(0, step.name.rfind(' '))};
  const bool in_parts =
      e.pattern == comm::Pattern::reduce_scatter || e.pattern == comm::Pattern::all_to_all;
  if (in_parts) e.count /= group.members;
  // MPI counts in 32 bits: elements of an all-reduce, else those for all members.
  const std::int64_t times = e.pattern == comm::Pattern::all_reduce ? 1 : group.members;
  if (e.count > std::numeric_limits<std::int32_t>::max() / times) {
    fail(ErrorCode::usage,
         format("{} would send {} elements {} at once, 2^31 are too many", e.name, e.count,
                times == 1 ? std::string() : format("to each of {} processes", times)),
         "a smaller micro_batch, or another mesh");
  }
  all_.push_back({std::move(e), -1});
  return known->second;
}

int Exchanges::group_of(const Dims& atoms) {
  const auto known = groups_.find(atoms);
  if (known != groups_.end()) return known->second;
  return groups_[atoms] = job_.group(part_.members(atoms));
}

template <class F>
void Exchanges::attempt(F f) noexcept {
  if (failed()) return;
  try {
    f();
  } catch (...) {
    error_ = std::current_exception();
    failed_ = true;
  }
}

void Exchanges::start(int number, const std::byte* from, std::byte* to) noexcept {
  attempt([&] {
    Prepared& p = all_[static_cast<std::size_t>(number)];
    p.under_way = job_.start(p.exchange, from, to);
    ++under_way_;
  });
}

void Exchanges::wait(int number) noexcept {
  attempt([&] {
    Prepared& p = all_[static_cast<std::size_t>(number)];
    job_.wait(p.under_way, p.exchange);
    --under_way_;
  });
}

void Exchanges::expect_none_failed() {
  if (error_) std::rethrow_exception(error_);
}

}  // namespace dew::cpu
