#include "dew/base/json.h"

#include <set>
#include <utility>
#include <vector>

#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxQuote = 160;

// The library's message without its tag, on one line, in plain ASCII and of bearable length: it
// quotes the input.
std::string plain_reason(std::string_view message) {
  if (const auto end = message.find("] "); message.starts_with("[json.") && end != message.npos) {
    message.remove_prefix(end + 2);
  }
  std::string plain(message.substr(0, kMaxQuote));
  for (char& c : plain) {
    if (c < ' ' || c > '~') c = '?';
  }
  return message.size() > kMaxQuote ? plain + "..." : plain;
}

std::string shorten(const Json& json) {
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMaxQuote ? text.substr(0, kMaxQuote) + "..." : text;
}

// Refuses during parsing what the library would take: repeated keys (it keeps the last) and deep
// nesting.
class Strictness {
 public:
  Strictness(const std::string& where, ErrorCode code) : where_(where), code_(code) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) {
      fail(code_, format("{}: nested more than {} levels deep", where_, kMaxDepth));
    }
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys_.back().insert(parsed.get<std::string>()).second) {
      fail(code_, format("{}: key {} appears twice", where_, shorten(parsed)));
    }
    return true;
  }

 private:
  const std::string& where_;
  ErrorCode code_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, ErrorCode code) {
  Strictness strictness(where, code);
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t event, Json& parsed) {
      return strictness(depth, event, parsed);
    });
  } catch (const nlohmann::json::exception& error) {
    fail(code, format("{} is not valid JSON: {}", where, plain_reason(error.what())));
  }
}

Json read_json(const Path& path, std::int64_t max_bytes, ErrorCode code) {
  return parse_json(read_file(path, code, max_bytes), path.string(), code);
}

JsonObject::JsonObject(const Json& json, std::string where, ErrorCode code)
    : json_(json), where_(std::move(where)), code_(code) {
  if (!json.is_object()) {
    fail(code_, format("{}: a JSON object is expected, found {}", where_, shorten(json)));
  }
}

void JsonObject::refuse(const std::string& key, std::string_view what_it_must_be) const {
  fail(code_, format("{}: {} must be {}, found {}", where_, in_quotes(key), what_it_must_be,
                     shorten(at(key))));
}

const Json& JsonObject::at(const std::string& key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) fail(code_, format("{}: {} is missing", where_, in_quotes(key)));
  return *found;
}

std::string JsonObject::text(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t least,
                                 std::int64_t most) const {
  const Json& value = at(key);
  const bool fits = value.is_number_unsigned()
                        ? std::cmp_less_equal(value.get<std::uint64_t>(), most)
                        : value.is_number_integer() && value.get<std::int64_t>() <= most;
  if (!fits || value.get<std::int64_t>() < least) {
    refuse(key, format("an integer from {} to {}", least, most));
  }
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> JsonObject::integer_or_null(const std::string& key, std::int64_t least,
                                                        std::int64_t most) const {
  if (at(key).is_null()) return std::nullopt;
  return integer(key, least, most);
}

JsonObject JsonObject::object(const std::string& key) const {
  return JsonObject(at(key), format("{}: {}", where_, in_quotes(key)), code_);
}

}  // namespace dew
