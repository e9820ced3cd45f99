#include "dew/train/replicas.h"

#include <map>
#include <sstream>
#include <string>

#include "dew/base/digest.h"
#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// A line for each part that other processes hold, too: "DIGEST NAME[BOX]".
std::string shared_parts(std::span<const Stepper::Array> arrays) {
  std::string text;
  for (const Stepper::Array& a : arrays) {
    for (const Stepper::Part& part : a.parts) {
      if (part.copies > 1)
        text +=
            format("{} {}{}\n", digest_text(digest_of(part.bytes)), a.name, to_string(part.box));
    }
  }
  return text;
}

}  // namespace

std::int64_t expect_equal_replicas(Processes& processes, std::span<const Stepper::Array> arrays) {
  if (processes.count() == 1) return 0;
  const std::vector<std::string> all =
      processes.exchange(shared_parts(arrays), "the digests of replicas");
  std::map<std::string, std::pair<std::string, int>> known;  // by part: digest, and who has it
  for (int rank = 0; rank < processes.count(); ++rank) {
    std::istringstream lines(all[static_cast<std::size_t>(rank)]);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t space = line.find(' ');
      const std::string digest = line.substr(0, space), part = line.substr(space + 1);
      const auto& [first, owner] = known.try_emplace(part, digest, rank).first->second;
      if (first == digest) continue;
      fail(ErrorCode::process, format("{} and {} hold different bits of {}", processes.name(owner),
                                      processes.name(rank), part));
    }
  }
  return std::ssize(known);
}

}  // namespace dew
