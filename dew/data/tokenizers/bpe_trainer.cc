#include "dew/data/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/byte_characters.h"

namespace dew {
namespace {

constexpr std::int64_t kReportEvery = 256;

// The 256 bytes in the order of their characters.
std::array<unsigned char, 256> byte_order() {
  std::array<unsigned char, 256> order{};
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<unsigned char>(i);
  std::ranges::sort(order, {}, [](unsigned char byte) { return byte_character(byte); });
  return order;
}

void check(const BpeTraining& options) {
  std::set<std::string_view> seen;
  for (const std::string& token : options.special) {
    if (token.empty()) fail(ErrorCode::usage, "a control token without text");
    if (!seen.insert(token).second)
      fail(ErrorCode::usage, format("the control token {} is there twice", in_quotes(token)));
  }
  const auto least = static_cast<std::int64_t>(256 + options.special.size());
  if (options.vocab_size < least || options.vocab_size > Vocabulary::kMostIds) {
    fail(
        ErrorCode::usage,
        format("a vocabulary of {}, but it must be from {} (256 bytes and {} control tokens) to {}",
               options.vocab_size, least, options.special.size(), Vocabulary::kMostIds));
  }
}

// All words, as lists of tokens that become shorter; and where each pair of neighbours is.
class Trainer {
 public:
  Trainer(const WordCounts& words, const BpeTraining& options) : options_(options) {
    result_.special = options.special;
    base_ = static_cast<TokenId>(options.special.size());
    const auto order = byte_order();
    std::array<TokenId, 256> id_of_byte{};
    for (std::size_t i = 0; i < order.size(); ++i) {
      id_of_byte[order[i]] = base_ + static_cast<TokenId>(i);
      add_token(std::string(1, static_cast<char>(order[i])));
    }
    for (std::size_t i = 0; i < words.size(); ++i)
      add_word(words.word(i), words.count(i), id_of_byte);
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto symbols = symbols_of(w);
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        change(symbols[i], symbols[i + 1], words_[w].count, w);
    }
    push_changed();
  }

  TrainedBpe run() {
    while (result_.vocab_size() < options_.vocab_size && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_[best.pair].count;
      if (count != best.count) {
        if (count > 0) push(best.pair);
        continue;
      }
      if (count < std::max<std::int64_t>(options_.min_count, 1)) break;
      merge(best);
      if (options_.progress && result_.vocab_size() % kReportEvery == 0)
        options_.progress(result_.vocab_size());
    }
    return std::move(result_);
  }

 private:
  struct Word {
    std::size_t begin = 0;
    std::uint32_t size = 0;
    std::int64_t count = 0;
  };
  struct Pair {
    std::uint64_t key = 0;
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // in which it is, or was
    bool changed = false;              // it is in changed_
  };
  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    std::uint32_t pair;
    // The heap's greatest: the highest count, then the lowest ids.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  std::span<TokenId> symbols_of(std::uint32_t w) {
    return std::span(symbols_).subspan(words_[w].begin, words_[w].size);
  }

  void add_word(std::string_view text, std::int64_t count,
                const std::array<TokenId, 256>& id_of_byte) {
    while (!text.empty()) {
      const std::string_view part = text.substr(0, kMostTrainedWord);
      text.remove_prefix(part.size());
      words_.push_back({symbols_.size(), static_cast<std::uint32_t>(part.size()), count});
      for (const char c : part) symbols_.push_back(id_of_byte[static_cast<unsigned char>(c)]);
    }
  }

  // The token of these bytes, made if there is none.
  TokenId add_token(std::string bytes) {
    const auto next = base_ + static_cast<TokenId>(result_.tokens.size());
    const auto [place, made] = ids_.emplace(bytes, next);
    if (made) result_.tokens.push_back(std::move(bytes));
    return place->second;
  }
  const std::string& bytes_of(TokenId id) const {
    return result_.tokens[static_cast<std::size_t>(id - base_)];
  }

  // Pairs that occur more often than before. What the heap says of them is passed over.
  void push_changed() {
    for (const std::uint32_t pair : changed_) {
      pairs_[pair].changed = false;
      push(pair);
    }
    changed_.clear();
  }
  void push(std::uint32_t pair) { heap_.push({pairs_[pair].count, pairs_[pair].key, pair}); }

  // A pair occurs so many times more (or less) in a word.
  void change(TokenId left, TokenId right, std::int64_t count, std::uint32_t word) {
    const std::uint64_t key = key_of(left, right);
    const auto [place, made] = index_.try_emplace(key, static_cast<std::uint32_t>(pairs_.size()));
    if (made) pairs_.push_back({.key = key, .count = 0, .words = {}, .changed = false});
    Pair& pair = pairs_[place->second];
    pair.count += count;
    if (count < 0) return;
    if (!std::exchange(pair.changed, true)) changed_.push_back(place->second);
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  }

  void merge(const Candidate& best) {
    const auto left = static_cast<TokenId>(best.key >> 32);
    const auto right = static_cast<TokenId>(best.key & 0xffffffff);
    const TokenId joined = add_token(bytes_of(left) + bytes_of(right));
    result_.merges.emplace_back(left, right);
    const std::vector<std::uint32_t> words = std::move(pairs_[best.pair].words);
    pairs_[best.pair].words.clear();
    for (const std::uint32_t w : words) merge_in(w, left, right, joined);
    pairs_[best.pair].count = 0;
    push_changed();
  }

  void merge_in(std::uint32_t w, TokenId left, TokenId right, TokenId joined) {
    const std::span<TokenId> s = symbols_of(w);
    const std::int64_t count = words_[w].count;
    std::size_t to = 0;
    for (std::size_t i = 0; i < s.size();) {
      if (s[i] != left || i + 1 == s.size() || s[i + 1] != right) {
        s[to++] = s[i++];
        continue;
      }
      if (to > 0) {
        change(s[to - 1], left, -count, w);
        change(s[to - 1], joined, count, w);
      }
      i += 2;
      if (i < s.size()) {
        change(right, s[i], -count, w);
        change(joined, s[i], count, w);
      }
      s[to++] = joined;
    }
    words_[w].size = static_cast<std::uint32_t>(to);
  }

  const BpeTraining& options_;
  TokenId base_ = 0;
  TrainedBpe result_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<Word> words_;
  std::vector<TokenId> symbols_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_;  // of pairs_ by key
  std::vector<std::uint32_t> changed_;                      // pairs with a greater count
  std::priority_queue<Candidate> heap_;
};

// A token as the file spells it, in JSON.
std::string spelled(const TrainedBpe& trained, TokenId id) {
  const auto special = static_cast<TokenId>(trained.special.size());
  if (id < special) return Json(trained.special[static_cast<std::size_t>(id)]).dump();
  std::string characters;
  append_byte_characters(trained.tokens[static_cast<std::size_t>(id - special)], characters);
  return Json(characters).dump();
}

}  // namespace

TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& options) {
  check(options);
  return Trainer(words, options).run();
}

std::string tokenizer_json_of(const TrainedBpe& trained) {
  std::string out = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [)";
  for (std::size_t i = 0; i < trained.special.size(); ++i) {
    out += format(R"({}
    {{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, )"
                  R"("normalized": false, "special": true}})",
                  i == 0 ? "" : ",", i, spelled(trained, static_cast<TokenId>(i)));
  }
  out += R"(
  ],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {)";
  for (TokenId id = 0; id < trained.vocab_size(); ++id)
    out += format("{}\n      {}: {}", id == 0 ? "" : ",", spelled(trained, id), id);
  out += "\n    },\n    \"merges\": [";
  for (std::size_t i = 0; i < trained.merges.size(); ++i) {
    const auto& [left, right] = trained.merges[i];
    out += format("{}\n      [{}, {}]", i == 0 ? "" : ",", spelled(trained, left),
                  spelled(trained, right));
  }
  return out + "\n    ]\n  }\n}\n";
}

}  // namespace dew
