// The text of a program with remarks.
#pragma once

#include <functional>
#include <string>

#include "dew/ir/program.h"

namespace dew {

// What to say of a value of `program` (or of the body of one of its scans); "" for nothing.
using ValueNote = std::function<std::string(const Program& program, int value)>;

// print() with `# note; note` at the ends of lines: one note for each value that a line makes. The
// parser takes them as blanks.
std::string print(const Program& program, const ValueNote& note);

}  // namespace dew
