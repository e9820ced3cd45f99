// What a program outside this repository needs to use the library; tests/install builds and runs
// it. It runs a program on the cores, so everything that a static link needs is needed here.
#include <dew/dew.h>

int main() {
  dew::Program program("consumer");
  dew::Value x = program.input("x", {dew::DType::f32, {2, 2}});
  program.output("y", dew::linear(x, x));
  const auto devices = dew::cpu_devices();
  const auto y = dew::run_program(program, std::vector{dew::Array({2, 2}, 1.0)}, *devices);
  return y[0].data[0] == 2.0 ? 0 : 1;
}
