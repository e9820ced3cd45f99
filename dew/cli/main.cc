// The program `dew`: arguments in, exit status out. Everything else is in the files beside.
#include "dew/cli/cli.h"

int main(int argc, char** argv) {
  const dew::cli::Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return dew::cli::run(arguments);
}
