// Strict JSON for our own files. For .cc files only: it includes nlohmann/json.hpp and is not
// installed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "dew/base/error.h"
#include "dew/base/file.h"

namespace dew {

using Json = nlohmann::json;
// For writing, keys in the order of insertion; reading with it would take quadratic time on many
// keys.
using OrderedJson = nlohmann::ordered_json;

// One JSON document and nothing after it. Refused, with `where` (a path) and the reason on one
// line: bad syntax, invalid UTF-8, a key twice in one object, nesting deeper than 64.
Json parse_json(std::string_view text, const std::string& where, ErrorCode code);
Json read_json(const Path& path, std::int64_t max_bytes, ErrorCode code);

// Members of one object, with errors that name file, key and what was found instead.
class JsonObject {
 public:
  // REQUIRES: `json` outlives this. Refuses what is not an object.
  JsonObject(const Json& json, std::string where, ErrorCode code);

  bool has(const std::string& key) const { return json_.contains(key); }
  // The member, which must be there.
  const Json& at(const std::string& key) const;
  std::string text(const std::string& key) const;
  // A JSON integer (2.0 is none) in [least, most].
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;
  // The same, or none where it says null.
  std::optional<std::int64_t> integer_or_null(const std::string& key, std::int64_t least,
                                              std::int64_t most) const;
  // The member as an object of its own.
  JsonObject object(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, std::string_view what_it_must_be) const;

 private:
  const Json& json_;
  std::string where_;
  ErrorCode code_;
};

}  // namespace dew
