#include "dew/data/tokenizers/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/unicode.h"
#include "dew/data/tokenizers/word_cache.h"

namespace dew {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score
constexpr std::size_t kLongPiece = 48, kPartReach = 256;
// Sums of up to kMostScore are rounded by far less than kTie.
constexpr double kTie = 1e-4, kMostScore = 1e8;

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unknown,
                 std::optional<std::array<TokenId, 256>> fallback)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      unknown_(unknown),
      fallback_(fallback),
      nodes_(1),
      adjacency_(Adjacency::Unit::character) {
  unknown_score_ = scores_.empty() ? 0 : *std::ranges::min_element(scores_);
  unknown_score_ -= kUnknownPenalty;
  adjacency_.only_between_known();
  for (TokenId id = 0; id < vocabulary_.end(); ++id) {
    const auto text = vocabulary_.text(id);
    if (!text || text->empty()) continue;
    insert(*text, id);
    adjacency_.add_token(*text);
    if (const CodePoint first = front_code_point(*text); first.bytes == text->size())
      adjacency_.declare_known(first.value);
  }
}

void Unigram::insert(std::string_view text, TokenId id) {
  std::uint32_t* link = &roots_[static_cast<unsigned char>(text[0])];
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    while (*link != 0 && nodes_[*link].byte != byte) link = &nodes_[*link].sibling;
    if (*link == 0) {
      *link = static_cast<std::uint32_t>(nodes_.size());
      node = *link;
      nodes_.push_back({.child = 0, .sibling = 0, .token = -1, .byte = byte});
    } else {
      node = *link;
    }
    link = &nodes_[node].child;
  }
  nodes_[node].token = id;
}

class UnigramEncoder final : public PieceEncoder {
 public:
  explicit UnigramEncoder(const Unigram& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& ids) override {
    if (score_ == 0 && piece.size() <= kLongPiece) {
      encode_short(piece, ids);
    } else {
      encode_front(piece, ids);
    }
    score_ = 0;
  }

  void encode_front(std::string_view front, std::vector<TokenId>& ids) override {
    while (!front.empty()) {
      const std::size_t part = front.size() > kLongPiece
                                   ? model_.adjacency_.first_part(front, 1, kPartReach)
                                   : front.size();
      encode_part(front.substr(0, part), ids);
      front.remove_prefix(part);
    }
  }

  void forget_front() override { score_ = 0; }

  std::size_t separable(std::string_view piece) const override {
    return model_.adjacency_.last_boundary(piece);
  }

 private:
  // The best path to a byte: the token that ends there, and where it begins.
  struct Place {
    double score = 0;
    std::size_t begin = kNowhere;
    TokenId token = -1;  // -1: an unknown character
  };
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  // A whole piece.
  void encode_short(std::string_view piece, std::vector<TokenId>& ids) {
    if (piece.empty()) return;
    const auto key = WordCache::keyed(piece);
    if (key && words_.find(*key, ids)) return;
    const std::size_t begin = ids.size();
    find_path(piece);
    write_path(piece, ids);
    if (key) words_.remember(*key, std::span(ids).subspan(begin));
  }

  // A part of a long piece. Sums go on from the part before: of ways that are equally good ("aa"
  // "a" and "a" "aa") the reference takes the one whose sum is rounded to more. What is remembered
  // has no such ways and no unknown characters.
  void encode_part(std::string_view part, std::vector<TokenId>& ids) {
    const std::size_t begin = ids.size();
    const auto key = WordCache::keyed(part);
    if (key && std::abs(score_) < kMostScore && parts_.find(*key, ids)) {
      for (std::size_t i = begin; i < ids.size(); ++i) score_ += score_of(ids[i]);
      return;
    }
    find_path(part);
    write_path(part, ids);
    score_ = places_[part.size()].score;
    const bool unknown = std::ranges::any_of(path_, [](const Step& s) { return s.unknown; });
    if (key && !tie_ && !unknown && std::abs(score_) < kMostScore)
      parts_.remember(*key, std::span(ids).subspan(begin));
  }

  double score_of(TokenId id) const { return model_.scores_[static_cast<std::size_t>(id)]; }

  void offer(std::size_t begin, std::size_t end, double score, TokenId token) {
    Place& place = places_[end];
    tie_ = tie_ || (place.begin != kNowhere && std::abs(score - place.score) < kTie);
    if (place.begin == kNowhere || score > place.score) place = {score, begin, token};
  }

  void find_path(std::string_view part) {
    places_.assign(part.size() + 1, {});
    places_[0].score = score_;
    tie_ = false;
    std::size_t at = 0;
    while (at < part.size()) {
      const std::size_t character = front_code_point(part.substr(at)).bytes;
      if (!offer_tokens(part, at, character)) {
        if (!model_.unknown_) {
          fail(ErrorCode::data,
               format("no token for the character {}, and the tokenizer has no unknown token",
                      in_quotes(part.substr(at, character))));
        }
        offer(at, at + character, places_[at].score + model_.unknown_score_, -1);
      }
      at += character;
    }
  }

  // All tokens that begin there; true if one of them is the first character.
  bool offer_tokens(std::string_view part, std::size_t at, std::size_t character) {
    const double before = places_[at].score;
    bool single = false;
    std::uint32_t node = model_.roots_[static_cast<unsigned char>(part[at])];
    for (std::size_t end = at + 1; node != 0; ++end) {
      const Unigram::Node& n = model_.nodes_[node];
      if (n.token >= 0) {
        offer(at, end, before + score_of(n.token), n.token);
        single = single || end - at == character;
      }
      if (end == part.size()) break;
      const auto byte = static_cast<unsigned char>(part[end]);
      node = n.child;
      while (node != 0 && model_.nodes_[node].byte != byte) node = model_.nodes_[node].sibling;
    }
    return single;
  }

  void write_path(std::string_view part, std::vector<TokenId>& ids) {
    path_.clear();
    for (std::size_t end = part.size(); end > 0;) {
      const Place& place = places_[end];
      const bool unknown = place.token < 0 || place.token == model_.unknown_;
      // Unknown ones in a row are one text.
      if (unknown && !path_.empty() && path_.back().unknown) {
        path_.back().begin = place.begin;
      } else {
        path_.push_back({place.begin, end, place.token, unknown});
      }
      end = place.begin;
    }
    for (auto step = path_.rbegin(); step != path_.rend(); ++step) {
      if (step->unknown) {
        write_unknown(part.substr(step->begin, step->end - step->begin), ids);
      } else {
        ids.push_back(step->token);
      }
    }
  }

  void write_unknown(std::string_view text, std::vector<TokenId>& ids) {
    if (const auto token = model_.vocabulary_.find(text)) {
      ids.push_back(*token);
      return;
    }
    if (model_.fallback_) {
      const auto id_of = [&](char c) { return (*model_.fallback_)[static_cast<unsigned char>(c)]; };
      if (std::ranges::all_of(text, [&](char c) { return id_of(c) >= 0; })) {
        for (const char c : text) ids.push_back(id_of(c));
        return;
      }
    }
    ids.push_back(*model_.unknown_);
  }

  struct Step {
    std::size_t begin, end;
    TokenId token;
    bool unknown;
  };

  const Unigram& model_;
  WordCache words_, parts_;
  double score_ = 0;  // of the parts before, of the same piece
  bool tie_ = false;  // in the last path two ways came close to each other
  std::vector<Place> places_;
  std::vector<Step> path_;
};

std::unique_ptr<PieceEncoder> Unigram::encoder() const {
  return std::make_unique<UnigramEncoder>(*this);
}

}  // namespace dew
