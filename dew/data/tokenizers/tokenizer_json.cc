#include <algorithm>
#include <array>
#include <map>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/json_parts.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

using tokenizer_json::Part;

// Tokens that published tokenizers begin and end documents with, the more telling first.
constexpr auto kBeginTokens = std::to_array<std::string_view>(
    {"<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "<|bos|>", "[BOS]",
     "<\xef\xbd\x9c"
     "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"});
constexpr auto kEndTokens = std::to_array<std::string_view>(
    {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|eos|>", "[EOS]",
     "<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"});

std::optional<TokenId> first_of(std::span<const std::string_view> names,
                                const TokenizerParts& parts) {
  for (const std::string_view name : names) {
    const auto found = std::ranges::find_if(
        parts.added, [&](const AddedToken& token) { return token.special && token.text == name; });
    if (found != parts.added.end()) return found->id;
  }
  return std::nullopt;
}

// "<s>" or {"content": "<s>", ...}; none if it is null or absent.
std::optional<std::string> token_name(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && found->at("content").is_string())
    return found->at("content").get<std::string>();
  return std::nullopt;
}

void name_ends(TokenizerParts& parts, std::string_view config, const std::string& where) {
  parts.bos = first_of(kBeginTokens, parts);
  parts.eos = first_of(kEndTokens, parts);
  if (config.empty()) return;
  const Json json = parse_json(config, where + ": tokenizer_config.json", ErrorCode::data);
  if (!json.is_object()) fail(ErrorCode::data, where + ": tokenizer_config.json is no object");
  const auto id_of = [&](const char* key) -> std::optional<TokenId> {
    const auto name = token_name(json, key);
    return name ? parts.vocabulary.find(*name) : std::nullopt;
  };
  if (json.contains("bos_token")) parts.bos = id_of("bos_token");
  if (json.contains("eos_token")) parts.eos = id_of("eos_token");
}

// An added token that the model has too is that one; others follow the model's, one by one. A file
// that numbers them otherwise is read in one way by some and in another by others.
void add_tokens(const Part& part, std::vector<AddedToken>& added, Vocabulary& vocabulary) {
  const auto size = static_cast<TokenId>(vocabulary.size());
  TokenId last = -1;
  for (const AddedToken& token : added) {
    const auto there = vocabulary.find(token.text);
    const TokenId expected = there ? *there : last >= size ? last + 1 : size;
    if (token.id != expected) {
      part.refuse(format("the token {} has id {}, but {}", in_quotes(token.text), token.id,
                         there ? format("the model gives it {}", expected)
                               : format("the next free one is {}", expected)));
    }
    if (!there && !vocabulary.add(token.text, token.id))
      part.refuse(
          format("the id {} of {} is that of another token", token.id, in_quotes(token.text)));
    last = std::max(last, token.id);
  }
}

// Tokens that are looked for in normalized text: what is nothing there would be found everywhere,
// and which of two would be found is not agreed upon.
void check_normalized(const Part& file, const TokenizerParts& parts) {
  std::map<std::string, const AddedToken*> seen;
  for (const AddedToken& token : parts.added) {
    if (!token.normalized) continue;
    std::string text = normalized(parts.normalizer, token.text);
    if (text.empty()) {
      file.at("added_tokens")
          .refuse(format("nothing is left of the token {} when it is normalized",
                         in_quotes(token.text)));
    }
    const auto [other, first] = seen.emplace(std::move(text), &token);
    if (first || *other->second == token) continue;
    file.at("added_tokens")
        .refuse(format("the tokens {} and {} are the same when they are normalized",
                       in_quotes(other->second->text), in_quotes(token.text)));
  }
}

void refuse_two_of_one_text(const Part& part, const std::vector<AddedToken>& added) {
  std::map<std::string_view, const AddedToken*> seen;
  for (const AddedToken& token : added) {
    const auto [other, first] = seen.emplace(token.text, &token);
    if (!first && *other->second != token)
      part.refuse(format("the token {} is there twice, with other flags", in_quotes(token.text)));
  }
}

// What is prepended counts as the first character, too; split off, there would be two first pieces.
void refuse_two_first_pieces(const Part& file, const TokenizerParts& parts) {
  bool split = false;
  for (const PreTokenizeStep& step : parts.pre_tokenizer) {
    split = split || std::holds_alternative<SplitStep>(step);
    const auto* mark = std::get_if<MarkStep>(&step);
    if (!split || mark == nullptr || mark->prefix != PrefixWhen::first) continue;
    if (std::ranges::any_of(parts.normalizer, [](const NormalizeStep& s) {
          return std::holds_alternative<PrependStep>(s);
        }))
      file.at("pre_tokenizer")
          .refuse("'prepend_scheme' is 'first' behind a split, and the normalizer prepends");
  }
}

void check_version(const Part& file) {
  if (file.object().has("version") && file.json.at("version") != "1.0")
    file.object().refuse("version", R"("1.0")");
}

void refuse_cutting(const Part& file) {
  for (const char* key : {"truncation", "padding"}) {
    if (file.has(key))
      file.refuse(format("'{}' would change texts by their length; it must be null", key));
  }
}

// Pieces go to the model as bytes if the last thing that happens to them is to become characters of
// bytes: then neither needs the characters.
bool take_byte_step(PreTokenizer& steps, const Part& model) {
  const bool bpe = !model.has("type") || model.type() == "BPE";
  if (steps.empty() || !bpe || !std::holds_alternative<ByteCharactersStep>(steps.back()))
    return false;
  steps.pop_back();
  return true;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where,
                                                std::string_view config) {
  return tokenizer_json::read_tokenizer(parse_json(text, where, ErrorCode::data), "tokenizer.json",
                                        where, config);
}

std::unique_ptr<Tokenizer> tokenizer_json::read_tokenizer(const Json& json, std::string name,
                                                          const std::string& where,
                                                          std::string_view config) {
  const Part file{json, where};
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  check_version(file);
  refuse_cutting(file);
  const Json null;
  const auto part = [&](const char* key) {
    return file.has(key) ? file.at(key) : Part{null, where + ": " + key};
  };
  TokenizerParts parts;
  parts.normalizer = read_normalizer(part("normalizer"));
  parts.pre_tokenizer = read_pre_tokenizer(part("pre_tokenizer"));
  refuse_two_first_pieces(file, parts);
  const Part model = file.at("model");
  auto read = read_model(model, take_byte_step(parts.pre_tokenizer, model));
  parts.model = std::move(read.model);
  parts.vocabulary = std::move(read.vocabulary);
  if (file.object().has("added_tokens")) {
    parts.added = read_added_tokens(file.at("added_tokens"));
    add_tokens(file.at("added_tokens"), parts.added, parts.vocabulary);
    refuse_two_of_one_text(file.at("added_tokens"), parts.added);
  }
  check_normalized(file, parts);
  if (parts.vocabulary.size() == 0) file.refuse("there is no token");
  auto frame = read_post_processor(part("post_processor"), parts.vocabulary);
  parts.before = std::move(frame.before);
  parts.behind = std::move(frame.behind);
  parts.decoder = read_decoder(part("decoder"));
  if (!file.has("decoder")) parts.joiner += ' ';
  name_ends(parts, config, where);
  return std::make_unique<FileTokenizer>(std::move(name), std::move(parts));
}

}  // namespace dew
