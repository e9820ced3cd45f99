#include "dew/base/json.h"

#include "tests/fuzz/fuzz.h"

void dew::fuzz::run(std::string_view input) {
  const auto parse = [](std::string_view text) {
    return parse_json(text, "x.json", ErrorCode::data);
  };
  const auto json = parsed(ErrorCode::data, [&] { return parse(input); });
  if (!json) return;
  const std::string text = json->dump();
  require(parsed_again([&] { return parse(text); }) == *json, "JSON reads back as another value");
  // The members' readers: of any kind, in and out of range.
  parsed(ErrorCode::data, [&] {
    const JsonObject object(*json, "x.json", ErrorCode::data);
    int members = 0;
    for (const auto& item : json->items()) {
      if (++members > 4) break;  // exceptions are slow
      parsed(ErrorCode::data, [&] { return object.text(item.key()); });
      parsed(ErrorCode::data, [&] { return object.integer(item.key(), -5, INT64_MAX); });
      parsed(ErrorCode::data, [&] { return object.integer_or_null(item.key(), INT64_MIN, 7); });
      parsed(ErrorCode::data, [&] { return object.object(item.key()).has("a"); });
      parsed(ErrorCode::data, [&] { return object.text(item.key() + "'"); });
    }
    return true;
  });
}
