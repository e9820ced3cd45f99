// What a program outside this repository needs to use the library; tests/install builds and runs
// it.
#include <dew/ir/program.h>
#include <dew/ops/ops.h>

int main() {
  dew::Program program("consumer");
  dew::Value x = program.input("x", {dew::DType::f32, {8, 64}});
  program.output("y", dew::tanh(x));
  return program.values().size() == 2 ? 0 : 1;
}
