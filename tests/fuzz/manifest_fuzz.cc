// Input: a manifest without its last line, the digest of all lines before, which no fuzzer would
// hit upon. The input as it is must be refused.
#include "dew/base/digest.h"
#include "dew/checkpoint/manifest.h"
#include "tests/fuzz/fuzz.h"

void dew::fuzz::run(std::string_view input) {
  const auto read = [](std::string_view text) { return parse_manifest(text, "manifest.json"); };
  parsed(ErrorCode::checkpoint, [&] { return read(input); });
  const std::string digest = digest_text(digest_of(std::as_bytes(std::span(input))));
  const std::string whole = std::string(input) + "\"xxh3\": \"" + digest + "\"}\n";
  const auto manifest = parsed(ErrorCode::checkpoint, [&] { return read(whole); });
  if (!manifest) return;
  const std::string text = manifest_text(*manifest);
  require(parsed_again([&] { return read(text); }) == *manifest,
          "a manifest reads back as another");
}
