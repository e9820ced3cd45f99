#include "dew/data/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "dew/data/data_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

TEST(Windows, TheNotebookHas2987) {
  const WindowData data =
      TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 32, .val_batches = 2}.load(
          {.batch = 16});
  EXPECT_EQ(data.records(), 2987);
  EXPECT_EQ(data.train.ids_left(), 95598 - (2986 * 32 + 33));
  EXPECT_EQ(data.val.records(), 60);
  EXPECT_EQ(data.val.ids_left(), 29);
  EXPECT_EQ(data.load.batch, 16);
}

struct Count {
  std::int64_t tokens, seq_len, stride, records, left;
};

TEST(Windows, CountsRecordsAndWhatIsLeft) {
  const TemporaryDirectory tmp;
  for (const Count& c : {Count{9, 8, 8, 1, 0},
                         {15, 8, 8, 1, 6},
                         {16, 8, 8, 1, 7},
                         {17, 8, 8, 2, 0},
                         {18, 8, 8, 2, 1},
                         {9, 3, 3, 2, 2},
                         {5, 3, 1, 2, 0},
                         {7, 3, 5, 1, 3},
                         {9, 3, 5, 2, 0},
                         {2, 1, 1, 1, 0},
                         {19, 18, 7, 1, 0}}) {
    const Windows windows(counting_file(tmp / "x", c.tokens), c.seq_len, c.stride);
    EXPECT_EQ(windows.records(), c.records) << c.tokens << " " << c.stride;
    EXPECT_EQ(windows.ids_left(), c.left) << c.tokens << " " << c.stride;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(c.seq_len + 1)), expected(ids.size());
    for (std::int64_t i = 0; i < c.records; ++i) {
      windows.read(i, 0, ids);
      std::iota(expected.begin(), expected.end(), static_cast<std::int32_t>(i * c.stride));
      EXPECT_EQ(ids, expected);
    }
  }
}

TEST(Windows, ShorterThanOneWindow) {
  const TemporaryDirectory tmp;
  const auto error = [&](std::int64_t tokens, std::int64_t seq_len) {
    return error_of(ErrorCode::data,
                    [&] { Windows(counting_file(tmp / "x", tokens), seq_len, seq_len); });
  };
  EXPECT_THAT(error(3, 8), HasSubstr("x: 3 ids are fewer than one window of 8 + 1 ids"));
  EXPECT_THAT(error(8, 8), HasSubstr("8 ids are fewer than"));
  EXPECT_EQ(error(9, 8), "no error");
  EXPECT_THAT(error(9, std::numeric_limits<std::int64_t>::max()),
              HasSubstr("9 ids are fewer than"));
}

TEST(TokenWindows, RefusesNonsense) {
  const auto load = [](const TokenWindows& windows, const LoadOptions& options = {}) {
    return error_of(ErrorCode::usage, [&] { windows.load(options); });
  };
  const TokenWindows good{.path = "tests/data/notebook-tokens", .seq_len = 32};
  EXPECT_EQ(load({.path = good.path}), "seq_len = 0, must be at least 1");
  EXPECT_EQ(load({.path = good.path, .seq_len = 8, .stride = -1}),
            "stride = -1, must be at least 1");
  EXPECT_EQ(load({.path = good.path, .seq_len = 8, .val_batches = -1}),
            "val_batches = -1, must not be negative");
  EXPECT_EQ(load(good, {.batch = 0}), "global_batch = 0, must be at least 1");
  EXPECT_EQ(load(good, {.prefetch = -1}), "prefetch = -1, must not be negative");
  EXPECT_THAT(
      error_of(
          ErrorCode::data,
          [] { TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 1950}.load({}); }),
      HasSubstr("val.bin: 1950 ids are fewer than one window of 1950 + 1 ids"));
}

TEST(DataIdentity, SeesWhatChangesTheRows) {
  const TemporaryDirectory tmp;
  const auto identity = [&](std::uint8_t first, std::int64_t seq_len, std::uint64_t seed) {
    write_directory<std::uint8_t>(tmp / "t", 256, {first, 2, 3, 4, 5, 6}, {1, 2, 3, 4});
    return TokenWindows{.path = tmp / "t", .seq_len = seq_len, .seed = seed}.load({}).identity();
  };
  const DataIdentity identical = identity(1, 2, 0);
  EXPECT_EQ(identity(1, 2, 0), identical);
  EXPECT_NE(identity(9, 2, 0), identical);  // another file of the same size
  EXPECT_NE(identity(1, 3, 0), identical);
  EXPECT_NE(identity(1, 2, 1), identical);
}

}  // namespace
}  // namespace dew
