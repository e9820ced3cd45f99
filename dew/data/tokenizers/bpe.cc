#include "dew/data/tokenizers/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/unicode.h"
#include "dew/data/tokenizers/word_cache.h"

namespace dew {
namespace {

// Pieces longer than this are cut where no token crosses, into parts that are met again.
constexpr std::size_t kLongPiece = 48, kPartReach = 40;
// Up to so many symbols, looking at all pairs is faster than keeping them in order.
constexpr std::size_t kFewSymbols = 64;

struct Symbol {
  TokenId id;
  MergeTable::Merge merge;  // with the next one
};

// The pair of lowest rank is found by looking at all of them.
void merge_few(const MergeTable& merges, std::vector<Symbol>& symbols) {
  const auto merge_at = [&](std::size_t i) {
    return i + 1 < symbols.size() ? merges.find(symbols[i].id, symbols[i + 1].id)
                                  : MergeTable::Merge{};
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i].merge = merge_at(i);
  while (!symbols.empty()) {
    const auto best =
        std::ranges::min_element(symbols, {}, [](const Symbol& s) { return s.merge.rank; });
    if (best->merge.rank == MergeTable::kNone) return;
    const auto i = static_cast<std::size_t>(best - symbols.begin());
    symbols[i].id = best->merge.id;
    symbols.erase(best + 1);
    symbols[i].merge = merge_at(i);
    if (i > 0) symbols[i - 1].merge = merge_at(i - 1);
  }
}

// Places where pairs of one rank are, given in order. They nearly always come in order too; those
// that do not wait in a heap.
class Places {
 public:
  void add(std::uint32_t place) {
    if (next_ == 0 && (sorted_.empty() || sorted_.back() < place)) {
      sorted_.push_back(place);
    } else {
      late_.push(place);
    }
  }
  bool empty() const { return next_ == sorted_.size() && late_.empty(); }
  std::uint32_t take() {
    if (next_ < sorted_.size() && (late_.empty() || sorted_[next_] < late_.top()))
      return sorted_[next_++];
    const std::uint32_t place = late_.top();
    late_.pop();
    return place;
  }

 private:
  std::vector<std::uint32_t> sorted_;
  std::size_t next_ = 0;  // of sorted_; once it moves, what comes is late
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> late_;
};

// The same for any number: ranks wait in a heap, each with its places; a pair that has changed
// since is passed over. So the time grows with the number of symbols, and hardly faster.
class ManyMerges {
 public:
  ManyMerges(const MergeTable& merges, std::vector<Symbol>& symbols)
      : merges_(merges), symbols_(symbols), next_(symbols.size()), before_(symbols.size()) {}

  void run() {
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
      next_[i] = i + 1;
      before_[i] = i - 1;  // of the first: beyond the end
      look(i);
    }
    while (!ranks_.empty()) {
      const std::uint32_t rank = ranks_.top();
      Places& places = places_[rank];
      if (places.empty()) {
        ranks_.pop();
        places_.erase(rank);
        continue;
      }
      const std::uint32_t at = places.take();
      if (symbols_[at].merge.rank == rank) join(at);
    }
    std::erase_if(symbols_, [](const Symbol& s) { return s.id < 0; });
  }

 private:
  bool exists(std::uint32_t i) const { return i < symbols_.size(); }

  void look(std::uint32_t i) {
    Symbol& s = symbols_[i];
    s.merge = exists(next_[i]) ? merges_.find(s.id, symbols_[next_[i]].id) : MergeTable::Merge{};
    if (s.merge.rank == MergeTable::kNone) return;
    const auto [places, made] = places_.try_emplace(s.merge.rank);
    if (made) ranks_.push(s.merge.rank);
    places->second.add(i);
  }

  void join(std::uint32_t i) {
    const std::uint32_t gone = next_[i];
    symbols_[i].id = symbols_[i].merge.id;
    symbols_[gone] = {-1, {}};
    next_[i] = next_[gone];
    if (exists(next_[i])) before_[next_[i]] = i;
    look(i);
    if (exists(before_[i])) look(before_[i]);
  }

  const MergeTable& merges_;
  std::vector<Symbol>& symbols_;
  std::vector<std::uint32_t> next_, before_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
  std::unordered_map<std::uint32_t, Places> places_;
};

}  // namespace

// ---- the table

std::uint64_t MergeTable::key_of(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

void MergeTable::reserve(std::size_t merges) {
  entries_.assign(std::bit_ceil(std::max<std::size_t>(2 * merges, 16)), {});
  shift_ = std::countl_zero(entries_.size() - 1);
}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = entries_.size() - 1;
  // The highest bits: both ids reach them.
  std::size_t slot = (key * std::uint64_t{0x9e3779b97f4a7c15U}) >> shift_;
  while (entries_[slot].key != key && entries_[slot].key != ~std::uint64_t{0})
    slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  entries_[slot_of(key)] = {key, merge};
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  const Entry& entry = entries_[slot_of(key_of(left, right))];
  return entry.merge;
}

MergeTable merges_of_ranks(const Vocabulary& ranks) {
  struct Pair {
    TokenId left, right, joined;
  };
  std::vector<Pair> pairs;
  for (TokenId id = 0; id < ranks.end(); ++id) {
    const auto text = ranks.text(id);
    for (std::size_t cut = 1; text && cut < text->size(); ++cut) {
      const auto left = ranks.find(text->substr(0, cut));
      if (!left) continue;
      const auto right = ranks.find(text->substr(cut));
      if (right) pairs.push_back({*left, *right, id});
    }
  }
  MergeTable merges;
  merges.reserve(pairs.size());
  for (const Pair& p : pairs)
    merges.set(p.left, p.right, {static_cast<std::uint32_t>(p.joined), p.joined});
  return merges;
}

// ---- the model

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options,
         const std::array<TokenId, 256>& fallback)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(options),
      byte_ids_(fallback),
      adjacency_(options.bytes ? Adjacency::Unit::byte : Adjacency::Unit::character) {
  if (options_.bytes) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      byte_ids_[byte] = vocabulary_.find({&text, 1}).value_or(-1);
    }
  }
  find_boundaries();
}

void Bpe::find_boundaries() {
  const bool all_bytes = std::ranges::all_of(byte_ids_, [](TokenId id) { return id >= 0; });
  if (!(all_bytes && (options_.bytes || options_.byte_fallback))) adjacency_.only_between_known();
  for (TokenId id = 0; id < vocabulary_.end(); ++id) {
    const auto text = vocabulary_.text(id);
    if (!text || text->empty()) continue;
    adjacency_.add_token(*text);
    if (options_.bytes) {
      if (text->size() == 1) adjacency_.declare_known(static_cast<unsigned char>((*text)[0]));
    } else if (const CodePoint first = front_code_point(*text); first.bytes == text->size()) {
      adjacency_.declare_known(first.value);
    }
  }
}

class BpeEncoder final : public PieceEncoder {
 public:
  explicit BpeEncoder(const Bpe& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& ids) override {
    if (piece.size() <= kLongPiece) return encode_part(piece, ids, model_.options_.whole_pieces);
    if (model_.options_.whole_pieces) {
      if (const auto whole = model_.vocabulary_.find(piece)) {
        ids.push_back(*whole);
        return;
      }
    }
    while (!piece.empty()) {
      const std::size_t part = model_.adjacency_.first_part(piece, 1, kPartReach);
      encode_part(piece.substr(0, part), ids, false);
      piece.remove_prefix(part);
    }
  }

  // What is remembered of all of them is on its way before the first is looked for.
  void encode_all(std::span<const std::string_view> pieces, std::vector<TokenId>& ids) override {
    keys_.resize(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!WordCache::keeps(pieces[i])) continue;
      keys_[i] = WordCache::key_of(pieces[i]);
      words_.expect(keys_[i]);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!WordCache::keeps(pieces[i])) {
        encode(pieces[i], ids);
      } else if (!words_.find(keys_[i], ids)) {
        const std::size_t begin = ids.size();
        make_part(pieces[i], model_.options_.whole_pieces, ids);
        words_.remember(keys_[i], std::span(ids).subspan(begin));
      }
    }
  }

  std::size_t separable(std::string_view piece) const override {
    // It may be a token as a whole.
    if (model_.options_.whole_pieces && piece.size() <= model_.vocabulary_.longest()) return 0;
    return model_.adjacency_.last_boundary(piece);
  }

 private:
  // `whole` is the same for all parts of up to kLongPiece bytes but those of longer pieces, which
  // are remembered apart.
  void encode_part(std::string_view part, std::vector<TokenId>& ids, bool whole) {
    if (!WordCache::keeps(part)) return make_part(part, whole, ids);
    WordCache& cache = whole || !model_.options_.whole_pieces ? words_ : parts_;
    const WordCache::Key key = WordCache::key_of(part);
    if (cache.find(key, ids)) return;
    const std::size_t begin = ids.size();
    make_part(part, whole, ids);
    cache.remember(key, std::span(ids).subspan(begin));
  }

  void make_part(std::string_view part, bool whole, std::vector<TokenId>& ids) {
    if (const auto token = whole ? model_.vocabulary_.find(part) : std::nullopt) {
      ids.push_back(*token);
    } else {
      merge(part, ids);
    }
  }

  void merge(std::string_view part, std::vector<TokenId>& ids) {
    symbols_.clear();
    if (model_.options_.bytes) {
      add_bytes(part);
    } else {
      add_characters(part);
    }
    if (symbols_.size() <= kFewSymbols) {
      merge_few(model_.merges_, symbols_);
    } else {
      ManyMerges(model_.merges_, symbols_).run();
    }
    for (const Symbol& s : symbols_) ids.push_back(s.id);
  }

  void add(TokenId id) { symbols_.push_back({id, {}}); }

  void add_bytes(std::string_view part) {
    for (const char c : part) {
      const TokenId id = model_.byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        end_unknown();
        add(id);
      } else {
        wait_for_unknown({&c, 1});
      }
    }
    end_unknown();
  }

  void add_characters(std::string_view part) {
    while (!part.empty()) {
      const CodePoint c = front_code_point(part);
      const std::string_view text = part.substr(0, c.bytes);
      part.remove_prefix(c.bytes);
      if (const auto id = model_.vocabulary_.find(text)) {
        end_unknown();
        add(*id);
      } else if (!add_fallback(text)) {
        wait_for_unknown(text);
      }
    }
    end_unknown();
  }

  bool add_fallback(std::string_view text) {
    if (!model_.options_.byte_fallback) return false;
    const auto id_of = [&](char c) { return model_.byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(text, [&](char c) { return id_of(c) < 0; })) return false;
    for (const char c : text) add(id_of(c));
    return true;
  }

  // An unknown character is written when the next known one comes: those in a row may be one.
  void wait_for_unknown(std::string_view text) {
    if (model_.options_.unknown_fails) {
      unknown_waits_ = false;
      fail(ErrorCode::data,
           format("no token for {}, and the tokenizer's unknown token is not in its vocabulary",
                  in_quotes(text)));
    }
    if (!model_.options_.unknown) return;
    if (unknown_waits_ && !model_.options_.join_unknown) add(*model_.options_.unknown);
    unknown_waits_ = true;
  }
  void end_unknown() {
    if (unknown_waits_) add(*model_.options_.unknown);
    unknown_waits_ = false;
  }

  const Bpe& model_;
  WordCache words_, parts_;
  std::vector<WordCache::Key> keys_;  // of pieces that come together
  std::vector<Symbol> symbols_;
  bool unknown_waits_ = false;
};

std::unique_ptr<PieceEncoder> Bpe::encoder() const { return std::make_unique<BpeEncoder>(*this); }

}  // namespace dew
