// What the tests of this folder share: a directory that cleans up, and a small checkpoint.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "dew/base/file_test_support.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"
#include "dew/checkpoint/writer.h"

namespace dew {

class TempDir {
 public:
  TempDir() {
    // In memory where possible: syncing thousands of files to a disk takes minutes.
    const Path shm = "/dev/shm";
    const Path parent =
        ::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path();
    std::string name = (parent / "dew_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() { remove_quietly(path_); }
  const Path& path() const { return path_; }
  Path operator/(const std::string& name) const { return path_ / name; }

 private:
  Path path_;
};

using Bytes = std::vector<std::byte>;

// Floats that differ everywhere, as bytes.
inline Bytes ramp(std::int64_t count, float first = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

inline CheckpointInfo sample_info(std::int64_t step = 400) {
  CheckpointInfo info;
  info.run = "run-1";
  info.seed = 18446744073709551615u;
  info.clocks = {.step = step,
                 .updates = step,
                 .skipped = 2,
                 .tokens = step * 512,
                 .non_finite_streak = 1,
                 .ema_updates = step / 2,
                 .line_steps = 3,
                 .line_loss = 0.1};
  info.data = {.position = step * 16,
               .corpus = 0x0123456789abcdefu,
               .records = 2987,
               .seq_len = 32,
               .stride = 32,
               .shuffle = true,
               .seed = 7};
  info.tokenizer = {.name = "byte", .eos_id = 255};
  info.model = "[model]\nname = \"causal_transformer\"\n";
  info.config = "[run]\ndir = \"runs/\xc3\xa4\"\n";
  info.processor = "x86-64 avx2";
  info.program = "dew 0.1.0";
  info.eval_loss = 1.25;
  return info;
}

inline TensorRecord tensor(std::string name, DType dtype, Dims shape) {
  std::vector<std::string> axes(shape.size());
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .axes = axes,
          .pieces = {}};
}

// Odd shapes, a scalar, a tensor without elements, a tensor in four pieces, three types.
struct Sample {
  std::vector<TensorRecord> tensors = {
      tensor("params/a", DType::f32, {3, 5, 2}), tensor("params/scalar", DType::f32, {}),
      tensor("params/none", DType::f32, {4, 0}), tensor("opt/m/a", DType::f32, {5, 7}),
      tensor("vars/half", DType::bf16, {3}),     tensor("vars/count", DType::i32, {2, 1})};
  std::map<std::string, Bytes> values;
  std::vector<Box> boxes_of_m = {
      {{3, 4}, {2, 3}}, {{0, 0}, {3, 4}}, {{3, 0}, {2, 4}}, {{0, 4}, {3, 3}}};

  Sample() {
    float first = 1;
    for (const TensorRecord& t : tensors) {
      const std::int64_t bytes = element_count(t.shape) * byte_size(t.dtype);
      values[t.name] = ramp((bytes + 3) / 4, first);
      values[t.name].resize(static_cast<std::size_t>(bytes));
      first += 1000;
    }
  }

  Bytes part(const std::string& name, const Box& box) const {
    for (const TensorRecord& t : tensors) {
      if (t.name != name) continue;
      Bytes out(static_cast<std::size_t>(box.elements() * byte_size(t.dtype)));
      copy_part(box, byte_size(t.dtype), whole(t.shape), values.at(name), box, out);
      return out;
    }
    return {};
  }

  Path write(const Path& directory, std::int64_t step = 400, const WriterOptions& options = {},
             const std::string& run = "run-1") const {
    CheckpointInfo info = sample_info(step);
    info.run = run;
    CheckpointWriter writer(directory, info, options);
    for (const TensorRecord& t : tensors) writer.declare(t);
    for (const TensorRecord& t : tensors) {
      if (t.name == "opt/m/a") {
        for (const Box& box : boxes_of_m) writer.add(t.name, box, part(t.name, box));
      } else {
        writer.add(t.name, values.at(t.name));
      }
    }
    writer.add_file("tokenizer.json", "{\"a\":1}");
    return writer.commit();
  }
};

// The message of the Error that `body` must throw.
template <class Body>
std::string refusal(Body body, ErrorCode code = ErrorCode::checkpoint) {
  const std::string message = error_of(code, body);
  EXPECT_NE(message, "no error");
  return message;
}

}  // namespace dew
