// The library as a user writes it: a small transformer learns bytes from a token directory.
#include <cstdio>

#include "dew/dew.h"

namespace {

// What a run tells goes where the program wants it.
class Printer : public dew::TrainObserver {
  void on_message(const std::string& line) override { std::printf("%s\n", line.c_str()); }
  void on_log(const dew::LogLine& line) override {
    std::printf("step %lld: loss %.4f\n", static_cast<long long>(line.step), line.loss);
  }
};

}  // namespace

int main() {
  const auto devices = dew::cpu_devices();
  const auto data =
      dew::TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 32, .val_batches = 2}.load(
          {.batch = 16});
  const auto model = dew::models::causal_transformer(
      {.vocab_size = 256, .emb_features = 64, .num_layers = 2, .num_heads = 4, .max_seq_len = 32});
  const auto objective = dew::LMObjective(model, {.seq_len = 32});

  Printer printer;
  dew::Trainer trainer(objective, dew::adamw(1e-3),
                       {.seed = 0, .devices = devices.get(), .observer = &printer});
  const auto result = trainer.fit(data, {.steps = 20, .log_every = 10});
  std::printf("validation loss %.4f\n", result.eval->loss);
  return result.eval->loss < 3.5 ? 0 : 1;
}
