// XXH3-64, the one checksum of files, tensors and token directories. Guards against accidents, not
// against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dew {

std::uint64_t digest_of(std::span<const std::byte> bytes);

// The same over bytes that come in pieces.
class Digest {
 public:
  Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void update(std::span<const std::byte> bytes);
  // Of everything so far; more may follow.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hexadecimal digits and back; anything else is none.
std::string digest_text(std::uint64_t digest);
std::optional<std::uint64_t> parse_digest(std::string_view text);

}  // namespace dew
