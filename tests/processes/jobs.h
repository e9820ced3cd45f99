// What the tests of runs in several processes share.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "tests/processes/runs.h"

namespace dew {

// What is not of mpirun itself: it has a lot to say about jobs that fail.
inline std::vector<std::string> own_lines(const Outcome& outcome) {
  std::vector<std::string> lines;
  std::istringstream text(outcome.err);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("dew: ") || line.starts_with("hint: ")) lines.push_back(line);
  }
  return lines;
}

// One line tells why the job ended, and it has all of these.
inline void expect_one_reason(const Outcome& outcome, int status,
                              const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  std::vector<std::string> errors = own_lines(outcome);
  std::erase_if(errors, [](const std::string& line) { return line.starts_with("hint: "); });
  ASSERT_EQ(errors.size(), 1u) << outcome.err;
  for (const std::string& part : parts)
    EXPECT_NE(errors[0].find(part), std::string::npos) << outcome.err << "\nwanted: " << part;
}

// Losses by step, from metrics.jsonl.
inline std::map<std::int64_t, double> losses_of(const Path& run, const char* member = "loss") {
  std::map<std::int64_t, double> losses;
  for (const Json& line : metrics_of(run)) {
    if (line.contains(member)) losses[line["step"]] = line[member];
  }
  return losses;
}

inline void expect_near(const std::map<std::int64_t, double>& found,
                        const std::map<std::int64_t, double>& wanted, double relative = 1e-5) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [step, loss] : wanted) {
    ASSERT_TRUE(found.contains(step)) << step;
    EXPECT_NEAR(found.at(step), loss, relative * std::abs(loss)) << "step " << step;
  }
}

}  // namespace dew
