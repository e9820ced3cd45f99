// The text of documents that come as JSON, an object a line.
#pragma once

#include <string>
#include <string_view>

namespace dew {

struct JsonLine {
  bool blank = false;  // nothing but white space
  std::string text;
  // What is wrong with the line; empty: nothing. With it, if known, the byte of the line (from 1).
  std::string fault;
  std::size_t fault_byte = 0;
};

// The member `field` of the object, which must be a string and there once. Valid UTF-8.
JsonLine read_json_line(std::string_view line, const std::string& field);

}  // namespace dew
