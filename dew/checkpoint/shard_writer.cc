#include "dew/checkpoint/shard_writer.h"

#include <algorithm>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/format.h"

namespace dew {

ShardWriter::ShardWriter(Path directory, const ShardOptions& options)
    : directory_(std::move(directory)), options_(options) {}

void ShardWriter::add(const TensorRecord& tensor, std::size_t index, const Box& box,
                      std::span<const std::byte> bytes) {
  Held held = {.written = {.tensor = index,
                           .piece = {.file = {},
                                     .offset = 0,
                                     .bytes = static_cast<std::int64_t>(bytes.size()),
                                     .box = box,
                                     .digest = digest_of(bytes)}},
               .header = {.name = piece_name(tensor.name, tensor.shape, box),
                          .type = stored_type(tensor.dtype),
                          .shape = box.extent},
               .bytes = bytes};
  const auto limit = static_cast<std::size_t>(options_.shard_bytes);
  if (bytes.size() >= limit) return write(std::span(&held, 1));
  if (held_bytes_ + bytes.size() > limit) flush();
  if (!options_.bytes_stay) {
    buffer_.reserve(limit);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    held.bytes = std::span(buffer_).last(bytes.size());
  }
  held_bytes_ += bytes.size();
  held_.push_back(std::move(held));
}

void ShardWriter::flush() {
  write(held_);
  held_.clear();
  buffer_.clear();
  held_bytes_ = 0;
}

void ShardWriter::write(std::span<Held> held) {
  if (held.empty()) return;
  // The widest elements first: then every piece is aligned to its elements.
  std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) {
    return byte_size(a.header.type) > byte_size(b.header.type);
  });
  std::vector<StoredTensor> headers;
  for (const Held& h : held) headers.push_back(h.header);
  const std::string file = format("shard-{:05}-{:05}.safetensors", options_.owner, files_.size());
  SafetensorsWriter writer(directory_ / file, ErrorCode::checkpoint, std::move(headers));
  for (std::size_t i = 0; i < held.size(); ++i) {
    writer.write(held[i].bytes);
    held[i].written.piece.file = file;
    held[i].written.piece.offset = writer.tensors()[i].offset;
    pieces_.push_back(std::move(held[i].written));
  }
  writer.finish();
  files_.push_back({.name = file,
                    .bytes = writer.file_bytes(),
                    .header_bytes = writer.header_bytes(),
                    .header_digest = writer.header_digest()});
}

}  // namespace dew
