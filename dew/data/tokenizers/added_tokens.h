// Tokens that are found in text as they are written, before anything else happens to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;                 // not text: control tokens
  bool normalized = false;              // looked for in normalized text
  bool single_word = false;             // not inside of a word
  bool lstrip = false, rstrip = false;  // takes the white space at that side with it
  bool operator==(const AddedToken&) const = default;
};

// Finds the leftmost token, the longest of several. Immutable once built.
class AddedTokenFinder {
 public:
  struct Found {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;  // none: text between tokens
  };
  using Visit = std::function<void(const Found&)>;

  AddedTokenFinder();

  // `text` is what is looked for, `token` outlives this. An empty text is never found, of two that
  // are the same the first.
  void add(std::string_view text, const AddedToken* token);
  bool empty() const { return tokens_.empty(); }

  // How far a text is done. A token that takes the white space behind it may take the beginning of
  // the next one: then `search` is before `given`.
  struct Place {
    std::size_t given = 0;   // all before it was visited
    std::size_t search = 0;  // where tokens are looked for next
  };

  // Visits the segments behind place.given in order and moves the place to the first one that is
  // not certain: to the end if `complete`. What is before is for looking back. `special`: special
  // tokens are found too; otherwise they are text.
  void visit(std::string_view text, Place& place, bool complete, bool special,
             const Visit& visit) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> next;
    std::int32_t token = -1;
  };
  struct Hit {
    std::size_t end = 0;
    std::int32_t token = -1;
    bool open = false;  // the text ends where a longer token may go on
  };
  Hit longest_at(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_;
  std::vector<const AddedToken*> tokens_;
  std::array<bool, 256> first_bytes_{};
  bool any_lstrip_ = false;
};

}  // namespace dew
