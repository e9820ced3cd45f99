#include "dew/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"
#include "dew/train/trainer.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LogLine line(std::int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .loss_mean = 2.5,
          .grad_norm = 0.125,
          .lr = 1e-3,
          .tokens = step * 512,
          .skipped = 1,
          .tokens_per_s = 1000,
          .step_ms = 0.5};
}

std::vector<std::int64_t> steps(const Path& path) {
  std::vector<std::int64_t> found;
  for (const MetricsLine& l : read_metrics(path)) found.push_back(l.step);
  return found;
}

TEST(Metrics, LinesAreExact) {
  const TemporaryDirectory dir;
  MetricsWriter writer(dir / "m", 0);
  writer.add(line(10, 3.5));
  writer.add(10, {.loss = 2, .perplexity = 7.38, .accuracy = 0.25, .tokens = 31});
  EXPECT_EQ(
      read_text(dir / "m"),
      R"({"step":10,"loss":3.5,"loss_mean":2.5,"grad_norm":0.125,"lr":0.001,"tokens":5120,"skipped":1,"tokens_per_s":1000.0,"step_ms":0.5})"
      "\n"
      R"({"step":10,"eval_loss":2.0,"eval_perplexity":7.38,"eval_accuracy":0.25,"eval_tokens":31})"
      "\n");
}

TEST(Metrics, NumbersReadBack) {
  const TemporaryDirectory dir;
  MetricsWriter writer(dir / "m", 0);
  const double values[] = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123456789};
  for (const double value : values) writer.add(line(1, value));
  std::size_t i = 0;
  for (const MetricsLine& l : read_metrics(dir / "m")) {
    EXPECT_EQ(parse_json(l.text, "m", ErrorCode::internal).at("loss").get<double>(), values[i++]);
  }
  EXPECT_EQ(i, std::size(values));
}

TEST(Metrics, NonFiniteIsNull) {
  const TemporaryDirectory dir;
  MetricsWriter writer(dir / "m", 0);
  writer.add(line(1, std::numeric_limits<double>::infinity()));
  writer.add(2, {.loss = std::nan(""), .perplexity = INFINITY, .accuracy = 0, .tokens = 1});
  EXPECT_THAT(read_text(dir / "m"), HasSubstr(R"("loss":null,)"));
  EXPECT_THAT(read_text(dir / "m"), HasSubstr(R"("eval_loss":null,"eval_perplexity":null)"));
}

TEST(Metrics, AResumedRunDropsLaterLines) {
  const TemporaryDirectory dir;
  {
    MetricsWriter writer(dir / "m", 0);
    for (const std::int64_t step : {10, 20, 30, 40}) writer.add(line(step, 1));
    writer.add(20, {});
    writer.add(40, {});
  }
  const std::string before = read_text(dir / "m");
  MetricsWriter writer(dir / "m", 25);
  EXPECT_THAT(steps(dir / "m"), ElementsAre(10, 20, 20));
  EXPECT_EQ(before.find(read_text(dir / "m").substr(0, 100)), 0u);  // kept as they were
  writer.add(line(30, 1));
  EXPECT_THAT(steps(dir / "m"), ElementsAre(10, 20, 20, 30));
  MetricsWriter exact(dir / "m", 30);
  EXPECT_THAT(steps(dir / "m"), ElementsAre(10, 20, 20, 30));
  MetricsWriter anew(dir / "m", 0);
  EXPECT_THAT(steps(dir / "m"), ElementsAre());
}

TEST(Metrics, AnEvaluationIsThereOnce) {
  const TemporaryDirectory dir;
  for (int round = 0; round < 3; ++round) {
    MetricsWriter writer(dir / "m", 20);
    writer.add(20, {});
  }
  EXPECT_THAT(steps(dir / "m"), ElementsAre(20));
}

TEST(Metrics, AnyTornEndIsDropped) {
  const TemporaryDirectory dir;
  {
    MetricsWriter writer(dir / "m", 0);
    writer.add(line(10, 1));
    writer.add(line(20, 1));
  }
  const std::string text = read_text(dir / "m");
  const std::size_t first = text.find('\n') + 1;
  for (std::size_t n = first; n < text.size(); n += 5) {
    write_text(dir / "m", text.substr(0, n));
    MetricsWriter writer(dir / "m", 100);
    EXPECT_EQ(read_text(dir / "m"), text.substr(0, first));
  }
  write_text(dir / "m", text + std::string(50, '\0') + "\n\xff\n{\"st");
  EXPECT_THAT(steps(dir / "m"), ElementsAre(10, 20));
}

TEST(Metrics, ABadLineInTheMiddleIsNamed) {
  const TemporaryDirectory dir;
  write_text(dir / "m", "{\"step\":1}\nwhat\n{\"step\":2}\n");
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { MetricsWriter(dir / "m", 5); }),
              HasSubstr("m:2: not a line of metrics"));
  EXPECT_EQ(read_text(dir / "m"), "{\"step\":1}\nwhat\n{\"step\":2}\n");
}

// A device would be read without end, a pipe waits for somebody.
TEST(Metrics, WhatIsNoFileIsRefused) {
  const TemporaryDirectory dir;
  create_directories(dir / "directory", ErrorCode::internal);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", dir / "device");
  for (const char* name : {"directory", "pipe", "device"}) {
    for (const std::int64_t step : {0, 5}) {
      EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { MetricsWriter(dir / name, step); }),
                  HasSubstr(std::string(name) + "' is not a regular file"));
    }
    EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { read_metrics(dir / name); }),
                HasSubstr("is not a regular file"));
  }
}

TEST(Metrics, Unwritable) {
  const TemporaryDirectory dir;
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { MetricsWriter(dir / "no" / "m", 0); }),
              HasSubstr("No such file"));
  EXPECT_THAT(steps(dir / "missing"), ElementsAre());
}

}  // namespace
}  // namespace dew
