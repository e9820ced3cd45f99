#include "dew/checkpoint/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <numeric>
#include <vector>

namespace dew {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Box, PrintsRanges) {
  EXPECT_EQ(to_string(Box{{2, 0}, {2, 5}}), "[2:4,0:5]");
  EXPECT_EQ(to_string(whole({})), "[]");
}

TEST(Box, BytesThatDoNotFitAreNone) {
  EXPECT_EQ(checked_bytes(Dims{3, 5}, 4), 60);
  EXPECT_EQ(checked_bytes(Dims{}, 8), 8);
  EXPECT_EQ(checked_bytes(Dims{3, 0}, 4), 0);
  EXPECT_EQ(checked_bytes(Dims{kMost}, 1), kMost);
  EXPECT_EQ(checked_bytes(Dims{kMost}, 2), std::nullopt);
  EXPECT_EQ(checked_bytes(Dims{std::int64_t{1} << 32, std::int64_t{1} << 32}, 1), std::nullopt);
  EXPECT_EQ(checked_bytes(Dims{kMost, kMost, 0}, 1), std::nullopt);
  EXPECT_EQ(checked_bytes(Dims{-1}, 1), std::nullopt);
}

TEST(Box, LiesIn) {
  EXPECT_TRUE(lies_in({{0, 3}, {2, 1}}, {2, 4}));
  EXPECT_TRUE(lies_in(whole({}), {}));
  EXPECT_FALSE(lies_in({{0, 3}, {2, 2}}, {2, 4}));
  EXPECT_FALSE(lies_in({{0}, {2}}, {2, 4}));
  EXPECT_FALSE(lies_in({{-1, 0}, {1, 1}}, {2, 4}));
  EXPECT_FALSE(lies_in({{0, 0}, {1, -1}}, {2, 4}));
  EXPECT_FALSE(lies_in({{1, 0}, {kMost, 1}}, {2, 4}));
  EXPECT_FALSE(lies_in({{kMost, 0}, {kMost, 1}}, {2, 4}));
}

TEST(Box, TilingSaysWhatIsWrong) {
  const Dims shape = {4, 6};
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{whole(shape)}), IsEmpty());
  EXPECT_THAT(tiling_problem({}, std::vector<Box>{whole({})}), IsEmpty());
  EXPECT_THAT(tiling_problem({0, 3}, std::vector<Box>{}), IsEmpty());
  EXPECT_THAT(
      tiling_problem(shape, std::vector<Box>{{{0, 0}, {4, 3}}, {{0, 3}, {2, 3}}, {{2, 3}, {2, 3}}}),
      IsEmpty());
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{{{0, 0}, {4, 3}}, {{0, 3}, {2, 3}}}),
              HasSubstr("18 of 24 elements"));
  // The right number of elements, but some twice and others not at all.
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{{{0, 0}, {4, 3}}, {{0, 2}, {4, 3}}}),
              HasSubstr("[0:4,0:3] and [0:4,2:5] overlap"));
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{whole(shape), {{0, 0}, {1, 1}}}),
              HasSubstr("overlap"));
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{{{0, 0}, {4, 7}}}), HasSubstr("does not lie"));
  EXPECT_THAT(tiling_problem(shape, std::vector<Box>{{{0, 0}, {4, 0}}}), HasSubstr("is empty"));
  EXPECT_THAT(tiling_problem({}, std::vector<Box>{whole({}), whole({})}), HasSubstr("overlap"));
}

// A box inside another.
Box any_part(const Box& of) {
  Box part = of;
  for (std::size_t d = 0; d < of.start.size(); ++d) {
    const std::int64_t skip = *rc::gen::inRange<std::int64_t>(0, of.extent[d] + 1);
    part.start[d] += skip;
    part.extent[d] = *rc::gen::inRange<std::int64_t>(0, of.extent[d] - skip + 1);
  }
  return part;
}

// Around `part`, and larger.
Box any_around(const Box& part) {
  Box box = part;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    const std::int64_t before = *rc::gen::inRange<std::int64_t>(0, part.start[d] + 1);
    box.start[d] -= before;
    box.extent[d] += before + *rc::gen::inRange<std::int64_t>(0, 3);
  }
  return box;
}

TEST(Box, CopiesAnyPart) {
  EXPECT_TRUE(rc::check("copy_part moves exactly the part", [] {
    const auto rank = *rc::gen::inRange<std::size_t>(0, 5);
    Dims shape;
    for (std::size_t d = 0; d < rank; ++d) shape.push_back(*rc::gen::inRange<std::int64_t>(1, 6));
    const Box part = any_part(whole(shape)), from = any_around(part), to = any_around(part);
    const std::int64_t width = *rc::gen::element<std::int64_t>(1, 2, 4);
    std::vector<std::byte> source(static_cast<std::size_t>(from.elements() * width));
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i % 250 + 1);
    std::vector<std::byte> target(static_cast<std::size_t>(to.elements() * width));
    copy_part(part, width, from, source, to, target);
    const Dims from_strides = row_major_strides(from.extent);
    std::size_t at = 0;
    for_each_index(to.extent, [&](const Dims& index) {
      std::int64_t source_at = 0;
      bool inside = true;
      for (std::size_t d = 0; d < rank; ++d) {
        const std::int64_t i = to.start[d] + index[d];
        inside = inside && i >= part.start[d] && i < part.start[d] + part.extent[d];
        source_at += (i - from.start[d]) * from_strides[d];
      }
      for (std::int64_t b = 0; b < width; ++b, ++at) {
        const auto expected =
            inside ? source[static_cast<std::size_t>(source_at * width + b)] : std::byte{};
        RC_ASSERT(target[at] == expected);
      }
    });
  }));
}

TEST(Box, ManyPiecesAreCheckedFast) {
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < 64; ++i)
    for (std::int64_t j = 0; j < 512; ++j) boxes.push_back({{i * 2, j * 3}, {2, 3}});
  EXPECT_THAT(tiling_problem({128, 1536}, boxes), IsEmpty());
  boxes[77].start[1] += 1;
  EXPECT_THAT(tiling_problem({128, 1536}, boxes), HasSubstr("overlap"));
}

}  // namespace
}  // namespace dew
