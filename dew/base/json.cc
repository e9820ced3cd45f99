#include "dew/base/json.h"

#include <utility>
#include <vector>

#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew {
namespace {

constexpr std::size_t kMaxDepth = 64;

// The library's message without its tag, on one line, in plain ASCII and of bearable length: it
// quotes the input.
std::string plain_reason(std::string_view message) {
  if (const auto end = message.find("] "); message.starts_with("[json.") && end != message.npos) {
    message.remove_prefix(end + 2);
  }
  return plain_text(message);
}

std::string shorten(const Json& json) {
  return shortened(json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

// Builds the document and refuses what the library would take: repeated keys (it keeps the last)
// and deep nesting. Its own callback for that looks at all members of an object after each of them.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& where, ErrorCode code) : where_(where), code_(code) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& members = open_.back()->get_ref<Json::object_t&>();
    const auto [member, fresh] = members.try_emplace(name, nullptr);
    if (!fresh) fail(code_, format("{}: key {} appears twice", where_, shorten(name)));
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    fail(code_, format("{} is not valid JSON: {}", where_, plain_reason(error.what())));
  }

 private:
  // Where the value was put: at the root, at the end of an array, or at the last key.
  Json* place(Json value) {
    Json* to = open_.empty() ? &root_ : member_;
    if (!open_.empty() && open_.back()->is_array()) {
      to = &open_.back()->get_ref<Json::array_t&>().emplace_back();
    }
    *to = std::move(value);
    return to;
  }

  bool put(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      fail(code_, format("{}: nested more than {} levels deep", where_, kMaxDepth));
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  ErrorCode code_;
  Json root_;
  // Containers that have not ended; none but the last grows, so none moves.
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, ErrorCode code) {
  // The parser takes one for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    fail(code, format("{} is not valid JSON: byte {} is 0", where, nul + 1));
  Builder builder(where, code);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json(const Path& path, std::int64_t max_bytes, ErrorCode code) {
  return parse_json(read_file(path, code, max_bytes, Source::regular), path.string(), code);
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
