#include "dew/data/json_lines.h"

#include <algorithm>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"

namespace dew {
namespace {

// Sees the line as it is parsed, so that nothing but the one text is copied.
class Finder final : public nlohmann::json_sax<Json> {
 public:
  Finder(const std::string& field, JsonLine& line) : field_(field), line_(line) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if (depth_ == 0) return other("a string");
    if (!here()) return true;
    if (found_) return fault(format("the member {} is there twice", in_quotes(field_)));
    found_ = true;
    line_.text = std::move(value);
    return true;
  }
  bool start_object(std::size_t) override {
    if (here() && depth_ > 0) return other("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (here() || depth_ == 0) return other("an array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) at_field_ = name == field_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    line_.fault_byte = position;
    return fault("it is not valid JSON");
  }

  bool found() const { return found_; }

 private:
  // A value that would be the member.
  bool here() const { return depth_ == 1 && at_field_; }
  bool fault(std::string text) {
    line_.fault = std::move(text);
    return false;
  }
  bool other(std::string_view what) {
    if (depth_ == 0) return fault(format("it is {}, not an object", what));
    if (here()) return fault(format("the member {} is {}, not a string", in_quotes(field_), what));
    return true;
  }

  const std::string& field_;
  JsonLine& line_;
  std::int64_t depth_ = 0;
  bool at_field_ = false, found_ = false;
};

}  // namespace

JsonLine read_json_line(std::string_view text, const std::string& field) {
  JsonLine line;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    line.blank = true;
    return line;
  }
  // The parser takes one for the end of the line.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    line.fault = "it is not valid JSON";
    line.fault_byte = nul + 1;
    return line;
  }
  Finder finder(field, line);
  Json::sax_parse(text.begin(), text.end(), &finder);
  if (line.fault.empty() && !finder.found())
    line.fault = format("the object has no member {}", in_quotes(field));
  return line;
}

}  // namespace dew
