#include "dew/runtime/cpu/kernels/dot_dims.h"

#include <algorithm>
#include <utility>

#include "dew/base/error.h"

namespace dew::cpu {
namespace {

using Loops = std::vector<DotLoop>;

// Whether `outer` walks on where `inner` ends, in every operand.
bool continues(const DotLoop& outer, const DotLoop& inner) {
  return outer.a == inner.size * inner.a && outer.b == inner.size * inner.b &&
         outer.c == inner.size * inner.c;
}

// Merges pairs, in whatever order the dimensions stand, until none is left.
Loops merged(Loops loops) {
  std::erase_if(loops, [](const DotLoop& l) { return l.size == 1; });
  for (std::size_t i = 0; i < loops.size();) {
    const auto inner = std::find_if(loops.begin(), loops.end(), [&](const DotLoop& l) {
      return &l != &loops[i] && continues(loops[i], l);
    });
    if (inner == loops.end()) {
      ++i;
      continue;
    }
    inner->size *= loops[i].size;
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
    i = 0;
  }
  return loops;
}

// Takes the loop with the greatest score out of `loops`; one step if there is none.
template <class Score>
DotLoop take_best(Loops& loops, Score score) {
  if (loops.empty()) return {};
  const auto best =
      std::max_element(loops.begin(), loops.end(), [&](const DotLoop& x, const DotLoop& y) {
        return std::pair(score(x), x.size) < std::pair(score(y), y.size);
      });
  const DotLoop found = *best;
  loops.erase(best);
  return found;
}

std::int64_t steps(const Loops& loops) {
  std::int64_t n = 1;
  for (const auto& l : loops) n *= l.size;
  return n;
}

// Dimensions of an operand of this rank that are in neither list, in order.
Dims free_dims(std::size_t rank, const Dims& batch, const Dims& contract) {
  Dims free;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(rank); ++d) {
    if (!contains(batch, d) && !contains(contract, d)) free.push_back(d);
  }
  return free;
}

}  // namespace

std::int64_t DotLoops::batches() const { return steps(batch); }
std::int64_t DotLoops::terms() const { return steps(sums); }
bool DotLoops::empty() const { return batches() == 0 || m.size == 0 || n.size == 0; }

DotLoops dot_loops(const DotDims& dims, const View& a, const View& b, const View& c) {
  const auto at = [](const Dims& values, std::int64_t d) {
    return values[static_cast<std::size_t>(d)];
  };
  const auto a_stride = [&](std::int64_t d) { return at(a.strides, d); };
  const auto b_stride = [&](std::int64_t d) { return at(b.strides, d); };
  Loops batch, m, n, k;
  std::int64_t out = 0;  // dimension of c
  for (std::size_t i = 0; i < dims.lhs_batch.size(); ++i, ++out) {
    const std::int64_t d = dims.lhs_batch[i];
    batch.push_back(
        {at(a.type.shape, d), a_stride(d), b_stride(dims.rhs_batch[i]), at(c.strides, out)});
  }
  for (const auto d : free_dims(a.type.shape.size(), dims.lhs_batch, dims.lhs_contract)) {
    m.push_back({at(a.type.shape, d), a_stride(d), 0, at(c.strides, out++)});
  }
  for (const auto d : free_dims(b.type.shape.size(), dims.rhs_batch, dims.rhs_contract)) {
    n.push_back({at(b.type.shape, d), 0, b_stride(d), at(c.strides, out++)});
  }
  for (std::size_t i = 0; i < dims.lhs_contract.size(); ++i) {
    const std::int64_t d = dims.lhs_contract[i];
    k.push_back({at(a.type.shape, d), a_stride(d), b_stride(dims.rhs_contract[i]), 0});
  }
  DEW_CHECK(out == c.type.rank(), "dot: result rank");

  DotLoops loops;
  loops.sums = merged(std::move(k));
  m = merged(std::move(m));
  n = merged(std::move(n));
  // What is contiguous is best covered by the product; among equals, the largest.
  loops.k = take_best(loops.sums, [](const DotLoop& l) { return (l.a == 1) + (l.b == 1); });
  loops.n = take_best(n, [](const DotLoop& l) { return (l.c == 1) + (l.b == 1); });
  loops.m = take_best(m, [](const DotLoop& l) { return (l.c == 1) + (l.a == 1); });
  loops.batch = std::move(batch);
  loops.batch.insert(loops.batch.end(), m.begin(), m.end());
  loops.batch.insert(loops.batch.end(), n.begin(), n.end());
  loops.batch = merged(std::move(loops.batch));
  return loops;
}

DotLoops transposed(DotLoops loops) {
  std::swap(loops.m, loops.n);
  const auto exchange = [](DotLoop& l) { std::swap(l.a, l.b); };
  exchange(loops.m);
  exchange(loops.n);
  exchange(loops.k);
  for (auto& l : loops.batch) exchange(l);
  for (auto& l : loops.sums) exchange(l);
  return loops;
}

}  // namespace dew::cpu
