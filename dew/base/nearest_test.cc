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

// With a limit it is the same number, or one above the limit.
TEST(Nearest, EditDistanceStopsAtALimit) {
  const std::string_view words[] = {"",       "fsdp",   "fdsp",    "fsddpx",        "tensor",
                                    "rosnet", "kitten", "sitting", "learning_rate", "nrate_learig"};
  for (const std::string_view a : words) {
    for (const std::string_view b : words) {
      const std::size_t whole = edit_distance(a, b);
      for (std::size_t most = 0; most < 15; ++most) {
        const std::size_t found = edit_distance(a, b, most);
        EXPECT_TRUE(whole <= most ? found == whole : found > most && found <= whole)
            << a << " " << b << " " << most;
      }
    }
  }
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
