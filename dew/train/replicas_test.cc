#include "dew/train/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dew/base/error.h"

namespace dew {
namespace {

// Rank 0 of two processes; the other has said `theirs` already.
class SecondHasSpoken : public Processes {
 public:
  explicit SecondHasSpoken(std::string theirs) : theirs_(std::move(theirs)) {}
  int rank() const override { return 0; }
  int count() const override { return 2; }
  std::string name(int rank) const override { return "rank " + std::to_string(rank); }
  std::vector<std::string> exchange(std::string_view mine, const char*) override {
    heard_ = mine;
    return {heard_, theirs_};
  }
  std::int64_t largest(std::int64_t mine, const char*) override { return mine; }
  const std::string& heard() const { return heard_; }

 private:
  std::string theirs_, heard_;
};

// A vector that two processes hold, and a matrix of which each has rows of its own.
class Replicas : public testing::Test {
 protected:
  Replicas() {
    arrays_[0].name = "params/norm";
    arrays_[0].parts = {{.box = whole({4}), .bytes = bytes(norm_), .copies = 2}};
    arrays_[1].name = "params/up";
    arrays_[1].parts = {{.box = whole({2, 2}), .bytes = bytes(rows_)}};
  }
  static std::span<std::byte> bytes(std::vector<float>& values) {
    return std::as_writable_bytes(std::span(values));
  }
  std::string said() {
    SecondHasSpoken alone("");
    expect_equal_replicas(alone, arrays_);
    return alone.heard();
  }

  std::vector<float> norm_ = {1, 2, 3, 4}, rows_ = {5, 6, 7, 8};
  std::vector<Stepper::Array> arrays_{2};
};

TEST_F(Replicas, EqualBitsAndPartsOfOnesOwn) {
  SecondHasSpoken processes(said());
  rows_[0] = 9;  // nobody else holds it
  EXPECT_EQ(expect_equal_replicas(processes, arrays_), 1);
}

TEST_F(Replicas, OneBitThatDiffers) {
  SecondHasSpoken processes(said());
  norm_[2] = std::nextafter(norm_[2], 4.0F);
  try {
    expect_equal_replicas(processes, arrays_);
    FAIL() << "not found";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::process);
    EXPECT_THAT(e.what(),
                testing::HasSubstr("rank 0 and rank 1 hold different bits of params/norm"));
  }
}

TEST_F(Replicas, AloneThereIsNothingToCompare) {
  EXPECT_EQ(expect_equal_replicas(one_process(), arrays_), 0);
}

}  // namespace
}  // namespace dew
