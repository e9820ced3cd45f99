// Checkpoints beside a plain copy of the same bytes: what writing, reading back and snapshots cost.
// TMPDIR chooses the disk.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/snapshot.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::int64_t kTensors = 150, kTensorBytes = std::int64_t{850} << 10;  // 124 MiB in all

class State {
 public:
  State() : bytes_(static_cast<std::size_t>(kTensors * kTensorBytes)) {
    for (std::size_t i = 0; i < bytes_.size(); i += 4) {
      const auto value = static_cast<float>(i);
      std::memcpy(&bytes_[i], &value, 4);
    }
    for (std::int64_t t = 0; t < kTensors; ++t) {
      StateTensor& tensor = tensors_.emplace_back();
      tensor.record = {.name = format("params/layer_{}", t),
                       .dtype = DType::f32,
                       .shape = {kTensorBytes / 4},
                       .axes = {""},
                       .pieces = {}};
      const auto part = std::span(bytes_).subspan(static_cast<std::size_t>(t * kTensorBytes),
                                                  static_cast<std::size_t>(kTensorBytes));
      tensor.parts.push_back({whole(tensor.record.shape), part});
    }
  }

  std::span<const StateTensor> tensors() const { return tensors_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<StateTensor> tensors_;
};

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "dew-bench-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { remove_quietly(path_); }
  const Path& path() const { return path_; }

 private:
  Path path_;
};

CheckpointInfo info() {
  CheckpointInfo info;
  info.clocks.step = 1;
  return info;
}

void count_bytes(benchmark::State& b) {
  b.SetBytesProcessed(b.iterations() * kTensors * kTensorBytes);
}

void BM_PlainFile(benchmark::State& b) {
  const State state;
  const Scratch scratch;
  for (auto _ : b) {
    FileWriter file(scratch.path() / "copy", kCode);
    file.write(state.bytes());
    file.finish();
  }
  count_bytes(b);
}
BENCHMARK(BM_PlainFile)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Write(benchmark::State& b) {
  const State state;
  const Scratch scratch;
  for (auto _ : b) {
    remove_quietly(scratch.path() / step_name(1));
    write_checkpoint(scratch.path(), info(), state.tensors());
  }
  count_bytes(b);
}
BENCHMARK(BM_Write)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_PlainRead(benchmark::State& b) {
  const State state;
  const Scratch scratch;
  FileWriter file(scratch.path() / "copy", kCode);
  file.write(state.bytes());
  file.finish();
  std::vector<std::byte> out(state.bytes().size());
  for (auto _ : b) benchmark::DoNotOptimize(FileReader(scratch.path() / "copy", kCode).read(out));
  count_bytes(b);
}
BENCHMARK(BM_PlainRead)->Unit(benchmark::kMillisecond)->UseRealTime();

// As a resume does: everything is verified, then read.
void BM_Restore(benchmark::State& b) {
  const State state;
  const Scratch scratch;
  write_checkpoint(scratch.path(), info(), state.tensors());
  std::vector<std::byte> out(static_cast<std::size_t>(kTensorBytes));
  for (auto _ : b) {
    const NewestCheckpoint newest = newest_checkpoint(scratch.path(), Verify::everything);
    for (const TensorRecord& tensor : newest.reader->tensors()) newest.reader->read(tensor, out);
  }
  count_bytes(b);
}
BENCHMARK(BM_Restore)->Unit(benchmark::kMillisecond)->UseRealTime();

// What a step waits for: the copy.
void BM_Snapshot(benchmark::State& b) {
  const State state;
  Snapshot snapshot;
  for (auto _ : b) snapshot.start(state.tensors(), [](std::span<const StateTensor>) {});
  count_bytes(b);
}
BENCHMARK(BM_Snapshot)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace dew
