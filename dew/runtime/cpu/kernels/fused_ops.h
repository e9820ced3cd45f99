// Pointwise ops as threaded code. A string of codes runs over blocks of kBlock elements: eight
// vectors (the accumulator) are handed from code to code in registers, each code changes them,
// loads them, or stores them, and calls the next. So a chain of ops costs one load and one store,
// not one of each an op.
#pragma once

#include <cstddef>

#include "dew/ir/op.h"

namespace dew::cpu {

inline constexpr std::size_t kBlock = 128;  // elements; on AVX2 two rounds of eight vectors

// Where a code finds an element: p + (i & mask) for element i of a tile.
inline constexpr std::size_t kWholeTile = ~std::size_t{0};
inline constexpr std::size_t kOneBlock = kBlock - 1;  // one block stands for all
struct Place {
  std::byte* p = nullptr;
  std::size_t mask = kWholeTile;
};

// The first parameters of every code are (const Code*, const Place*, element); vectors follow,
// which only code compiled for one instruction set can name.
using CodeFn = void (*)();

struct Code {
  CodeFn fn = nullptr;
  int a = 0, b = 0;   // numbers of places
  double number = 0;  // exponent of pow
};

// Which operands are the accumulator (A) and which come from places (a, then b).
enum class Form { unary, acc_mem, mem_acc, acc_acc, select_first, select_second, select_third };

struct CodeTable {
  // Null if there is no routine. `operand` is the dtype of the op's last operand, `number` the
  // exponent of pow.
  CodeFn (*find)(const OpDef* op, double number, DType operand, DType result, Form form);
  // Accumulator from and to place a, which holds elements of that dtype; pred is a mask of 32 bits
  // in the accumulator.
  CodeFn (*load)(DType dtype);
  CodeFn (*store)(DType dtype);
  CodeFn halt;  // the last code of a string
  // Runs a string over the blocks that begin at first, first + kBlock, .. < last.
  void (*run)(const Code* string, const Place* places, std::size_t first, std::size_t last);
};

// For the best instruction set of this machine.
const CodeTable& code_table();

// The op leaves the bits of a register as they are (stop_gradient, f32 to bf16 before it is
// stored).
bool is_identity(const OpDef* op, DType operand, DType result);

}  // namespace dew::cpu
