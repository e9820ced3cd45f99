// Byte-pair encoding: a piece is cut into characters or bytes, then the pair of neighbours that
// comes first in the list of merges is joined, the leftmost of several, until none is left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dew/data/tokenizers/adjacency.h"
#include "dew/data/tokenizers/token_model.h"
#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

// Pairs of ids to what joins them. Open addressing; built once.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = kNone;
    TokenId id = -1;
  };
  static constexpr std::uint32_t kNone = 0xffffffff;

  void reserve(std::size_t merges);
  // A pair that is there already is replaced. REQUIRES: reserved for so many.
  void set(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Entry {
    std::uint64_t key = ~std::uint64_t{0};
    Merge merge;
  };
  static std::uint64_t key_of(TokenId left, TokenId right);
  std::size_t slot_of(std::uint64_t key) const;
  std::vector<Entry> entries_;
  int shift_ = 0;  // leaves the bits of a place in entries_
};

struct BpeOptions {
  // Pieces and tokens are bytes, not characters.
  bool bytes = false;
  // A piece that is a token is that token, whatever the merges say.
  bool whole_pieces = false;
  // For characters that are no token, the tokens <0x00> to <0xFF> of their bytes.
  bool byte_fallback = false;
  // For those that remain. None: they are left out.
  std::optional<TokenId> unknown = {};
  bool unknown_fails = false;  // the file names a token for them that is not there
  bool join_unknown = false;   // several in a row are one
};

class Bpe final : public TokenModel {
 public:
  // `vocabulary` as the pieces have it (bytes or characters), `fallback` the ids of <0x00>...: none
  // is -1.
  Bpe(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options,
      const std::array<TokenId, 256>& fallback);

  std::unique_ptr<PieceEncoder> encoder() const override;
  bool separates(std::string_view text, std::size_t at) const override {
    return adjacency_.separates(text, at);
  }
  bool parts_stand_alone() const override { return true; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  friend class BpeEncoder;
  void find_boundaries();

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<TokenId, 256> byte_ids_;  // of single bytes; or of <0x00>...
  Adjacency adjacency_;
};

// The ids of a rank file (tiktoken): any two neighbours whose bytes together are a token join, the
// one of the lowest rank first. A rank is an id.
MergeTable merges_of_ranks(const Vocabulary& ranks);

}  // namespace dew
