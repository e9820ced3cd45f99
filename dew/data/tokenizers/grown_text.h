// How long a text may become: a tokenizer's file can ask for steps that multiply it without end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dew {

// Appends to a text of which it lets no more than so many bytes come.
class GrownText {
 public:
  // Enough for a text of so many bytes: published steps make at most 18 of one.
  static constexpr std::size_t most_of(std::size_t bytes) { return (1 << 16) + 64 * bytes; }
  // For a token that is decoded.
  static constexpr std::size_t kMostOfToken = std::size_t{1} << 24;

  GrownText(std::string& out, std::size_t most) : out_(out), most_(most), room_(most) {}

  // Throws ErrorCode::data if it is too much.
  GrownText& operator+=(std::string_view more) {
    if (more.size() > room_) refuse();
    room_ -= more.size();
    out_ += more;
    return *this;
  }

 private:
  [[noreturn]] void refuse() const;

  std::string& out_;
  std::size_t most_, room_;
};

}  // namespace dew
