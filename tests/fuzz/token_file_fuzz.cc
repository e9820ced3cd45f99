// Input: a line with meta.json, then the bytes of train.bin.
#include <algorithm>
#include <cstring>
#include <vector>

#include "dew/data/token_directory.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {
namespace {

// Every id is one of the vocabulary, or the file was refused.
void check_ids(const TokenFile& file, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.read(0, ids);
  for (const std::int32_t id : ids) require(id >= 0 && id < vocab_size, "an id outside");
  std::vector<std::int32_t> part(ids.size() / 2);
  file.read(file.size() - static_cast<std::int64_t>(part.size()), part);
  require(std::equal(part.rbegin(), part.rend(), ids.rbegin()), "a window of other ids");
}

}  // namespace

void run(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const auto meta =
      parsed(ErrorCode::data, [&] { return parse_token_meta(input.substr(0, end), "meta.json"); });
  if (!meta) return;
  const std::string_view bytes = input.substr(std::min(end + 1, input.size()));
  std::vector<std::uint32_t> aligned(bytes.size() / 4 + 1);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  parsed(ErrorCode::data, [&] {
    const TokenFile file("train.bin", std::as_bytes(std::span(aligned)).first(bytes.size()),
                         {.dtype = meta->dtype,
                          .vocab_size = meta->vocab_size,
                          .tokens = meta->train_tokens,
                          .digest = meta->train_digest});
    check_ids(file, meta->vocab_size);
    return true;
  });
}

}  // namespace dew::fuzz
