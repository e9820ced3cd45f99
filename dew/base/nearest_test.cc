#include "dew/base/nearest.h"

#include <gtest/gtest.h>

#include <string>

namespace dew {
namespace {

TEST(Nearest, EditDistanceCountsSlips) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("fsdp", "fsdp"), 0U);
  EXPECT_EQ(edit_distance("fsdp", ""), 4U);
  EXPECT_EQ(edit_distance("fdsp", "fsdp"), 1U);      // swapped
  EXPECT_EQ(edit_distance("fsp", "fsdp"), 1U);       // left out
  EXPECT_EQ(edit_distance("fsddp", "fsdp"), 1U);     // put in
  EXPECT_EQ(edit_distance("tensos", "tensor"), 1U);  // changed
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Nearest, IsTheFirstOfTheClosest) {
  const std::string_view words[] = {"data", "date", "fsdp"};
  EXPECT_EQ(nearest("datum", words), "data");
  EXPECT_EQ(nearest("fspd", words), "fsdp");
  EXPECT_EQ(nearest("", words), "data");
  EXPECT_EQ(nearest(std::string(1000000, 'x'), words), "data");
}

}  // namespace
}  // namespace dew
