// Data: filling batches, checking a file at opening, tokenizing. Bytes are those of the batch's ids
// and labels, of the file, and of the text.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/epoch_order.h"
#include "dew/data/loader.h"
#include "dew/data/tokenize.h"
#include "dew/data/tokenizer.h"

namespace dew {
namespace {

constexpr std::int64_t kIds = std::int64_t{1} << 26;

class Scratch {
 public:
  Scratch() { create_directories(path(), ErrorCode::data); }
  ~Scratch() { remove_quietly(path()); }
  static Path path() { return std::filesystem::temp_directory_path() / "dew-bench-data"; }
};

// A file of `width` bytes an id, and what it must be.
TokenFileSpec make_file(const Path& path, std::int64_t width, std::int64_t vocab_size) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kIds * width), 1);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), kIds * width);
  return {.dtype = static_cast<IdType>(width), .vocab_size = vocab_size, .tokens = kIds};
}

std::int64_t vocab_of(std::int64_t width) { return width == 1 ? 256 : 1 << (width == 2 ? 15 : 25); }

void fill(benchmark::State& state) {
  const Scratch scratch;
  const std::int64_t seq_len = state.range(0), width = state.range(1);
  const Path path = Scratch::path() / "ids";
  const TokenFileSpec spec = make_file(path, width, vocab_of(width));
  const Windows windows(std::make_shared<TokenFile>(path, spec), seq_len, seq_len);
  const DispatchPlan plan({.global_batch = 64, .seq_len = seq_len});
  Loader loader(windows, plan, {.prefetch = 0});
  for (auto _ : state) benchmark::DoNotOptimize(loader.next().ids.data());
  state.SetBytesProcessed(state.iterations() * 64 * seq_len * 8);
  state.SetItemsProcessed(state.iterations() * 64 * seq_len);
}
BENCHMARK(fill)->ArgNames({"seq_len", "width"})->ArgsProduct({{32, 256, 2048}, {1, 2, 4}});

void open_and_check(benchmark::State& state) {
  const Scratch scratch;
  const std::int64_t width = state.range(0);
  const Path path = Scratch::path() / "ids";
  TokenFileSpec spec = make_file(path, width, width == 1 ? 200 : vocab_of(width));
  for (auto _ : state) benchmark::DoNotOptimize(TokenFile(path, spec).fingerprint());
  state.SetBytesProcessed(state.iterations() * kIds * width);
}
BENCHMARK(open_and_check)->ArgName("width")->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

void permutation(benchmark::State& state) {
  const EpochOrder order(state.range(0), 0, 0);
  std::int64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(order(i));
    i = (i + 1) % state.range(0);
  }
}
BENCHMARK(permutation)->Arg(2987)->Arg(1'000'000'000);

void tokenize_bytes(benchmark::State& state) {
  const Scratch scratch;
  const Path text = Scratch::path() / "text", out = Scratch::path() / "out";
  std::ofstream(text) << std::string(std::size_t{1} << 28, 'x');
  for (auto _ : state) {
    tokenize(ByteTokenizer(), {.inputs = {text}, .out = out});
    state.PauseTiming();
    remove_quietly(out);
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() << 28);
}
BENCHMARK(tokenize_bytes)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace dew
