// Input: a whole file; and again as two bytes with the number of bytes of data, then the text of a
// header whose length is put before it.
#include <algorithm>
#include <cstring>

#include "dew/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// In a span of exactly the file's size, so that the sanitizer sees every read beyond it.
void check_file(const std::string& file) {
  const std::vector<std::byte> exact(bytes_of(file).begin(), bytes_of(file).end());
  const auto read = [](std::span<const std::byte> bytes) {
    return parse_safetensors(bytes, "x.safetensors", ErrorCode::checkpoint);
  };
  const auto header = parsed(ErrorCode::checkpoint, [&] { return read(exact); });
  if (!header) return;
  std::int64_t data = 0;
  for (const StoredTensor& t : header->tensors) {
    require(t.offset >= header->bytes && t.bytes >= 0, "a tensor outside the data");
    require(t.offset + t.bytes <= static_cast<std::int64_t>(file.size()), "a tensor outside");
    data += t.bytes;
  }
  require(header->bytes + data == static_cast<std::int64_t>(file.size()), "bytes of no tensor");

  std::vector<StoredTensor> ordered = header->tensors;
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::string text = safetensors_header(ordered, header->metadata);
  text.append(static_cast<std::size_t>(data), '\0');
  const SafetensorsHeader again = parsed_again([&] { return read(bytes_of(text)); });
  require(again.metadata == header->metadata, "metadata reads back as another");
  std::ranges::sort(ordered, {}, &StoredTensor::name);
  require(again.tensors == ordered, "tensors read back as others");
}

}  // namespace

void run(std::string_view input) {
  check_file(std::string(input));
  if (input.size() < 2) return;
  const auto low = static_cast<unsigned char>(input[0]),
             high = static_cast<unsigned char>(input[1]);
  const std::string_view header = input.substr(2);
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  file.append(std::size_t{low} + std::size_t{high} * 256, '\0');
  check_file(file);
}

}  // namespace dew::fuzz
