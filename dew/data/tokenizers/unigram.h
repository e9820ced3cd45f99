// Unigram: of all ways to cut a piece into tokens, the one whose scores sum to the most.
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

class Unigram final : public TokenModel {
 public:
  // `scores` by id. `unknown`: for characters that are no token, several in a row are one; none:
  // such text is refused (ErrorCode::data). `fallback`: the ids of <0x00>... for bytes of unknown
  // characters, -1 where there is none; empty: they are unknown.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unknown,
          std::optional<std::array<TokenId, 256>> fallback);

  std::unique_ptr<PieceEncoder> encoder() const override;
  bool separates(std::string_view text, std::size_t at) const override {
    return adjacency_.separates(text, at);
  }
  // Of ways with equal sums, rounding decides, and so what was added before.
  bool parts_stand_alone() const override { return false; }

 private:
  friend class UnigramEncoder;
  // A trie of bytes: children of a node are a linked list of siblings, those of the root a table.
  struct Node {
    std::uint32_t child = 0, sibling = 0;  // 0: none
    TokenId token = -1;
    unsigned char byte = 0;
  };
  void insert(std::string_view text, TokenId id);

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<TokenId> unknown_;
  std::optional<std::array<TokenId, 256>> fallback_;
  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> roots_{};
  Adjacency adjacency_;
};

}  // namespace dew
