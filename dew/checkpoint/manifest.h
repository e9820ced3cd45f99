// The manifest of a checkpoint: what the state is and where each byte of it lies.
// docs/checkpoint_format.md describes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/dtype.h"
#include "dew/base/error.h"
#include "dew/base/shape.h"
#include "dew/checkpoint/box.h"

namespace dew {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::int64_t kCheckpointVersion = 1;

// Counts since the beginning of the run, kept across resumes.
struct Clocks {
  std::int64_t step = 0;               // attempted steps
  std::int64_t updates = 0;            // committed ones: schedule, EMA and bias correction follow
  std::int64_t skipped = 0;            // steps that were skipped for non-finite numbers
  std::int64_t tokens = 0;             // real tokens seen
  std::int64_t non_finite_streak = 0;  // skipped ones at the end, without one between
  std::int64_t ema_updates = 0;        // updates that the average has seen
  // Steps since the last line of metrics.jsonl, and the sum of their losses (none: not finite).
  std::int64_t line_steps = 0;
  std::optional<double> line_loss = 0.0;

  bool operator==(const Clocks&) const = default;
};

// Where the run is in which data. The position holds only where all the rest is equal.
struct DataState {
  std::int64_t position = 0;  // records taken
  std::uint64_t corpus = 0;   // fingerprint of the training ids
  std::int64_t records = 0, seq_len = 0, stride = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;

  bool operator==(const DataState&) const = default;
};

// What the ids of the model mean.
struct TokenizerState {
  std::string name;  // "byte", or the checkpoint's own file "tokenizer.json"; empty: not known
  std::optional<std::int64_t> eos_id;
  std::optional<std::int64_t> bos_id = {};  // that documents of the training data begin with

  bool operator==(const TokenizerState&) const = default;
};

// Everything about a state but its arrays.
struct CheckpointInfo {
  std::string run;         // tells runs apart: kept by resumes, other in every new run
  std::uint64_t seed = 0;  // of the run
  Clocks clocks;
  DataState data;
  TokenizerState tokenizer;
  std::string model;                // TOML: the section [model] of the config
  std::string config;               // TOML: the whole resolved config; empty for imported models
  std::string processor;            // kind on which the bits were made
  std::string program;              // what wrote it, "dew 0.1.0"
  std::optional<double> eval_loss;  // of this state; none: not evaluated, or not finite

  bool operator==(const CheckpointInfo&) const = default;
};

// A part of a tensor and where it lies: row-major, little-endian, without gaps.
struct StoredPiece {
  std::string file;
  std::int64_t offset = 0, bytes = 0;  // from the first byte of the file
  Box box;
  std::uint64_t digest = 0;  // XXH3-64 of the bytes

  bool operator==(const StoredPiece&) const = default;
};

struct TensorRecord {
  // "params/layers_3/mlp/up_proj/kernel", "opt/m/...", "opt/v/...", "ema/...", "vars/...": letters,
  // digits, _ - . and / only. Layers go by their number in the model.
  std::string name;
  DType dtype = DType::f32;
  Dims shape;                     // of the whole tensor
  std::vector<std::string> axes;  // logical names, one a dimension; empty text where there is none
  std::vector<StoredPiece> pieces;  // cover it exactly once; none for a tensor without elements

  bool operator==(const TensorRecord&) const = default;
};

// A safetensors file. Its header carries a digest, the rest is pieces.
struct ShardFile {
  std::string name;
  std::int64_t bytes = 0, header_bytes = 0;
  std::uint64_t header_digest = 0;

  bool operator==(const ShardFile&) const = default;
};

// Any other file, such as tokenizer.json.
struct ExtraFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;

  bool operator==(const ExtraFile&) const = default;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<TensorRecord> tensors;
  std::vector<ShardFile> shards;
  std::vector<ExtraFile> files;

  bool operator==(const Manifest&) const = default;
};

// The file's text; its last line carries the digest of all lines before.
std::string manifest_text(const Manifest& manifest);

// The reverse. Throws ErrorCode::checkpoint with `where` and the reason if the digest is wrong, the
// version is newer, anything is missing or of a wrong kind, a file or tensor is named twice or by
// a name that is none, a tensor is not covered exactly once by its pieces, or a byte of a shard
// after its header belongs to no piece or to two.
Manifest parse_manifest(std::string_view text, const std::string& where);

// Is it the name of a tensor? Of a file inside a checkpoint directory?
bool is_tensor_name(std::string_view name);
bool is_file_name(std::string_view name);

// "params/a[0:2,0:4]": how a piece of a tensor is called inside a shard; the tensor's own name
// where the piece is all of it.
std::string piece_name(const std::string& tensor, const Dims& shape, const Box& box);

}  // namespace dew
