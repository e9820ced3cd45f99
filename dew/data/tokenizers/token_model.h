// What turns a piece of text, as pre-tokenizers cut it, into ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

// A model at work in one thread: it remembers what it met. Needs its model alive.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  // Appends the ids of a whole piece.
  virtual void encode(std::string_view piece, std::vector<TokenId>& ids) = 0;
  // The same for several in order.
  virtual void encode_all(std::span<const std::string_view> pieces, std::vector<TokenId>& ids) {
    for (const std::string_view piece : pieces) encode(piece, ids);
  }
  // The front of a piece of which more comes, as far as separable() says; the rest, or more of it,
  // comes next.
  virtual void encode_front(std::string_view front, std::vector<TokenId>& ids) {
    encode(front, ids);
  }
  // The rest does not come: what comes next is another piece.
  virtual void forget_front() {}
  // For a piece whose end has not come yet: how many bytes of its front may be encoded by
  // themselves now, the rest later, with the same ids as the whole; 0 if that is not known.
  virtual std::size_t separable(std::string_view piece) const = 0;
};

// Immutable, usable from any thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // True if no token and nothing else crosses byte `at` of the text, between two characters.
  virtual bool separates(std::string_view text, std::size_t at) const = 0;
  // Whether what lies between such places has the same ids whatever is before it.
  virtual bool parts_stand_alone() const = 0;
  virtual std::unique_ptr<PieceEncoder> encoder() const = 0;
};

}  // namespace dew
