// The models of tokenizer.json.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/bpe.h"
#include "dew/data/tokenizers/byte_characters.h"
#include "dew/data/tokenizers/json_parts.h"
#include "dew/data/tokenizers/unigram.h"

namespace dew::tokenizer_json {
namespace {

void add_token(const Part& part, Vocabulary& vocabulary, std::string_view text, std::int64_t id) {
  if (vocabulary.add(text, static_cast<TokenId>(id))) return;
  const auto there = vocabulary.text(static_cast<TokenId>(id));
  if (there) {
    part.refuse(
        format("the tokens {} and {} have the same id {}", in_quotes(*there), in_quotes(text), id));
  }
  part.refuse(format("the token {} is there twice", in_quotes(text)));
}

Vocabulary read_vocabulary(const Part& part) {
  (void)part.object();
  Vocabulary vocabulary;
  for (const auto& item : part.json.items()) {
    const Json& id = item.value();
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= Vocabulary::kMostIds) {
      part.object().refuse(item.key(), format("an id from 0 to {}", Vocabulary::kMostIds - 1));
    }
    add_token(part, vocabulary, item.key(), id.get<std::int64_t>());
  }
  return vocabulary;
}

std::array<TokenId, 256> fallback_ids(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> ids{};
  for (std::size_t byte = 0; byte < ids.size(); ++byte)
    ids[byte] = vocabulary.find(format("<0x{:02X}>", byte)).value_or(-1);
  return ids;
}

// "a b" or ["a", "b"]. Places are made for messages only: there are many merges.
std::pair<std::string_view, std::string_view> read_pair(const Part& merges, std::size_t index) {
  const Json& json = merges.json[index];
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string())
    return {json[0].get_ref<const std::string&>(), json[1].get_ref<const std::string&>()};
  if (json.is_string()) {
    const std::string_view text = json.get_ref<const std::string&>();
    const auto blank = text.find(' ');
    if (blank != text.npos && text.find(' ', blank + 1) == text.npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  }
  merges.element(index).refuse("a merge must be two tokens, with one blank between or in an array");
}

MergeTable read_merges(const Part& part, const Vocabulary& vocabulary) {
  MergeTable merges;
  const std::size_t count = part.size();
  merges.reserve(count);
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [left, right] = read_pair(part, i);
    const auto id_of = [&, i](std::string_view text) {
      const auto id = vocabulary.find(text);
      if (!id) {
        part.element(i).refuse(
            format("the merge's token {} is not in the vocabulary", in_quotes(text)));
      }
      return *id;
    };
    joined = left;
    joined += right;
    const TokenId left_id = id_of(left), right_id = id_of(right);
    merges.set(left_id, right_id, {static_cast<std::uint32_t>(i), id_of(joined)});
  }
  return merges;
}

// Tokens spelled in the characters of bytes as bytes. Others can be made from no text.
Vocabulary as_bytes(const Vocabulary& characters) {
  Vocabulary bytes;
  for (TokenId id = 0; id < characters.end(); ++id) {
    const auto text = characters.text(id);
    if (!text) continue;
    if (const auto plain = bytes_of_characters(*text)) bytes.add(*plain, id);
  }
  return bytes;
}

void refuse_members(const Part& part) {
  part.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (part.has("dropout") && part.json.at("dropout") != 0)
    part.refuse("'dropout' makes ids random, which is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!part.text(key, "").empty()) part.refuse(format("'{}' is not supported", key));
  }
}

ReadModel read_bpe(const Part& part, bool bytes) {
  refuse_members(part);
  Vocabulary vocabulary = read_vocabulary(part.at("vocab"));
  MergeTable merges = read_merges(part.at("merges"), vocabulary);
  BpeOptions options;
  options.bytes = bytes;
  options.whole_pieces = part.flag_or_null("ignore_merges", false);
  options.byte_fallback = part.flag_or_null("byte_fallback", false);
  options.join_unknown = part.flag_or_null("fuse_unk", false);
  if (part.has("unk_token")) {
    const std::string unknown = part.object().text("unk_token");
    options.unknown = vocabulary.find(unknown);
    options.unknown_fails = !options.unknown;  // as the reference: only where it is needed
  }
  if (bytes && options.byte_fallback)
    part.refuse("'byte_fallback' with a ByteLevel pre-tokenizer is not supported");
  const auto fallback = fallback_ids(vocabulary);
  auto model = std::make_shared<Bpe>(bytes ? as_bytes(vocabulary) : vocabulary, std::move(merges),
                                     options, fallback);
  return {std::move(model), std::move(vocabulary)};
}

// A score as the reference has it: its reader rounds the digits, then their quotient by a power of
// ten, which makes the last bit of some numbers of 16 digits and more another one. Ways to cut a
// text that are equally good differ in no more than such bits.
double as_the_reference_reads(double value) {
  constexpr int kMostExactPower = 22;
  std::array<char, 40> text{};
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), std::abs(value),
                                        std::chars_format::scientific)
                              .ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  const char* at = text.data();
  for (bool behind_point = false; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      behind_point = true;
      continue;
    }
    digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
    exponent -= behind_point ? 1 : 0;
  }
  int shown = 0;
  if (end - at > 2) std::from_chars(at + 2, end, shown);
  exponent += at != end && at[1] == '-' ? -shown : shown;
  if (exponent < -kMostExactPower || exponent > kMostExactPower) return value;
  double power = 1;
  for (int i = std::abs(exponent); i > 0; --i) power *= 10;
  const double rounded = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? rounded / power : rounded * power, value);
}

ReadModel read_unigram(const Part& part) {
  part.only({"unk_id", "vocab", "byte_fallback"});
  const Part pieces = part.at("vocab");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Json& piece = pieces.json[i];
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number())
      pieces.element(i).refuse("a token and its score are expected");
    add_token(pieces, vocabulary, piece[0].get_ref<const std::string&>(),
              static_cast<std::int64_t>(i));
    const double score = piece[1].get<double>();
    if (!std::isfinite(score)) pieces.element(i).refuse("the score must be finite");
    scores.push_back(as_the_reference_reads(score));
  }
  if (scores.empty()) pieces.refuse("there is no token");
  std::optional<TokenId> unknown;
  if (part.has("unk_id")) {
    unknown = static_cast<TokenId>(
        part.object().integer("unk_id", 0, static_cast<std::int64_t>(scores.size()) - 1));
  }
  std::optional<std::array<TokenId, 256>> fallback;
  if (part.flag_if_there("byte_fallback", false)) fallback = fallback_ids(vocabulary);
  auto model = std::make_shared<Unigram>(vocabulary, std::move(scores), unknown, fallback);
  return {std::move(model), std::move(vocabulary)};
}

}  // namespace

ReadModel read_model(const Part& part, bool bytes) {
  // Files of early versions do not say the type.
  const std::string type = part.object().has("type") ? part.type()
                           : part.has("merges")      ? "BPE"
                                                     : "Unigram";
  if (type == "BPE") return read_bpe(part, bytes);
  if (type == "Unigram") return read_unigram(part);
  part.unsupported(type, {"BPE", "Unigram"});
}

}  // namespace dew::tokenizer_json
