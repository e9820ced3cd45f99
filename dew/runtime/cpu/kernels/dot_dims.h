// A general dot as loops: which dimensions of its operands merge into one, and which one product
// covers.
#pragma once

#include <vector>

#include "dew/plan/plan.h"

namespace dew::cpu {

// `size` steps that move by these strides (elements) in a, b and c; 0 for an operand that lacks the
// dimension.
struct DotLoop {
  std::int64_t size = 1, a = 0, b = 0, c = 0;
  bool operator==(const DotLoop&) const = default;
};

// c[batch, m, n] = sum over sums, k of a[batch, sums, m, k] b[batch, sums, k, n]. Example: x
// [b,t,e] . w [e,h,d] of row-major views is m = b t, n = h d, k = e, without further loops.
struct DotLoops {
  DotLoop m, n, k;  // one product
  std::vector<DotLoop>
      batch;  // products that write different elements; also free dimensions that do not merge
  std::vector<DotLoop>
      sums;  // further contracted dimensions: products that add to the same elements

  std::int64_t batches() const;
  std::int64_t terms() const;  // products of the sum
  bool empty() const;          // no element of c
  bool a_transposed() const { return m.a == 1 && k.a != 1 && k.size > 1; }
  bool b_transposed() const { return k.b == 1 && n.b != 1 && n.size > 1; }
};

DotLoops dot_loops(const DotDims& dims, const View& a, const View& b, const View& c);

// The same product with the operands' roles exchanged: transposed c = transposed b times transposed
// a.
DotLoops transposed(DotLoops loops);

}  // namespace dew::cpu
