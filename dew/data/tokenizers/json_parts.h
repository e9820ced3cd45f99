// The parts of a tokenizer.json, one reader each. For .cc files only: it includes JSON.
//
// Every member is read or known to change nothing; anything else is ErrorCode::data by name, so
// that no tokenizer is read as another one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/json.h"
#include "dew/data/tokenizers/file_tokenizer.h"

namespace dew::tokenizer_json {

// An object of the file with its place in it, "tokenizer.json: normalizer".
struct Part {
  const Json& json;
  std::string where;

  // Throws if it is no object.
  JsonObject object() const { return JsonObject(json, where, ErrorCode::data); }
  std::string type() const { return object().text("type"); }
  // Throws if there is a member that is not listed ("type" always may be).
  void only(std::initializer_list<std::string_view> members) const;
  Part at(const std::string& key) const { return {object().at(key), where + ": " + key}; }
  Part element(std::size_t index) const;
  // An array; throws if it is none.
  std::size_t size() const;
  bool has(const std::string& key) const;  // and not null
  // A flag that must be there; one that need not, but is no null; one that may be null as well. The
  // reference tells these three kinds apart, and so do files that it has written.
  bool flag(const std::string& key) const;
  bool flag_if_there(const std::string& key, bool absent) const;
  bool flag_or_null(const std::string& key, bool absent) const;
  std::string text(const std::string& key, std::string_view absent) const;
  [[noreturn]] void refuse(std::string_view what) const;
  // "X is not supported here; these are: ..."
  [[noreturn]] void unsupported(std::string_view name,
                                std::initializer_list<std::string_view> known) const;
};

// All of it, as the tokenizer that meta.json calls `name`. `config`: see load.h.
std::unique_ptr<Tokenizer> read_tokenizer(const Json& json, std::string name,
                                          const std::string& where, std::string_view config);

std::vector<AddedToken> read_added_tokens(const Part& part);
NormalizerSteps read_normalizer(const Part& part);
PreTokenizer read_pre_tokenizer(const Part& part);
DecodeSteps read_decoder(const Part& part);

struct Frame {
  std::vector<TokenId> before, behind;

  bool adds() const { return !before.empty() || !behind.empty(); }
};
Frame read_post_processor(const Part& part, const Vocabulary& vocabulary);

// `bytes`: pieces come as bytes where the vocabulary has their characters.
struct ReadModel {
  std::shared_ptr<const TokenModel> model;
  Vocabulary vocabulary;
};
ReadModel read_model(const Part& part, bool bytes);

}  // namespace dew::tokenizer_json
