// Batches for dew probe, and what it prints and writes.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "dew/checkpoint/safetensors.h"
#include "tests/cli/program.h"

namespace dew {

// An integer tensor of a batch file, stored as `type`.
struct Integers {
  Dims shape;
  std::vector<std::int64_t> values;
  StoredType type = StoredType::i64;
};
using BatchFile = std::map<std::string, Integers>;

inline std::string stored(const Integers& t) {
  std::string bytes;
  for (const std::int64_t value : t.values) {
    bytes.append(reinterpret_cast<const char*>(&value),
                 static_cast<std::size_t>(byte_size(t.type)));  // little-endian
  }
  return bytes;
}

inline void write_batch(const Path& path, const BatchFile& batch) {
  std::vector<StoredTensor> tensors;
  for (const auto& [name, tensor] : batch)
    tensors.push_back({.name = name, .type = tensor.type, .shape = tensor.shape});
  SafetensorsWriter writer(path, ErrorCode::internal, std::move(tensors));
  for (const auto& [name, tensor] : batch) {
    const std::string bytes = stored(tensor);
    writer.write(std::as_bytes(std::span(bytes)));
  }
  writer.finish();
}

// Ids and labels in [0, vocab), some labels ignored.
inline BatchFile some_batch(std::int64_t rows, std::int64_t length, std::int64_t vocab) {
  Integers ids{{rows, length}, {}}, labels{{rows, length}, {}};
  for (std::int64_t i = 0; i < rows * length; ++i) {
    ids.values.push_back((i * 37 + 11) % vocab);
    labels.values.push_back(i % 5 == 3 ? -100 : (i * 53 + 7) % vocab);
  }
  return {{"input_ids", ids}, {"labels", labels}};
}

inline Json probe(const Words& words) {
  Words all = {"probe"};
  all.insert(all.end(), words.begin(), words.end());
  const Outcome outcome = dew(all);
  expect_done(outcome);
  EXPECT_EQ(outcome.err, "");
  return parse_json(outcome.out, "stdout", ErrorCode::internal);
}

// The tensors of a file as numbers.
struct Floats {
  Dims shape;
  std::vector<float> values;
};
inline std::map<std::string, Floats> read_floats_of(const Path& path) {
  const SafetensorsFile file(path, ErrorCode::internal);
  std::map<std::string, Floats> all;
  for (const StoredTensor& tensor : file.tensors()) {
    if (!is_float(tensor.type)) continue;
    Floats& to = all[tensor.name];
    to.shape = tensor.shape;
    to.values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    read_floats(tensor.type, file.bytes(tensor), to.values);
  }
  return all;
}

}  // namespace dew
