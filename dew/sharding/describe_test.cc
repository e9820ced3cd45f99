#include "dew/sharding/describe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dew/base/error.h"
#include "dew/sharding/layout.h"

namespace dew {
namespace {

struct Placed {
  Mesh mesh;
  Dims shape;
  Spec spec;
};

// As the layout places a parameter; the notebook's table if nothing else is said.
Placed placed(const Mesh& mesh, const Dims& shape = {256, 64},
              const AxisNames& names = {"vocab", "embed"}) {
  return {mesh, shape, parameter_spec(mesh, {.min_shard = 1}, shape, names)};
}

std::string description(const Placed& p, std::int64_t devices = 3) {
  return describe(p.mesh, p.spec, p.shape, devices);
}

std::string drawing(const Placed& p, bool color = false) {
  return draw_blocks(p.mesh, p.spec, p.shape, color);
}

// The first `n` lines.
std::string head(const std::string& text, int n) {
  std::size_t end = 0;
  for (int i = 0; i < n; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

TEST(Describe, SaysWhatDevicesHold) {
  EXPECT_EQ(description(placed(build_mesh({.fsdp = 8}, 8))),
            "spec: P('fsdp',)\n"
            "  cpu:0: rows slice(0, 32, None), local shape (32, 64)\n"
            "  cpu:1: rows slice(32, 64, None), local shape (32, 64)\n"
            "  cpu:2: rows slice(64, 96, None), local shape (32, 64)\n");
  EXPECT_EQ(description(placed(build_mesh({}, 8))),
            "spec: P()\n"
            "  cpu:0: rows slice(None, None, None), local shape (256, 64)\n"
            "  cpu:1: rows slice(None, None, None), local shape (256, 64)\n"
            "  cpu:2: rows slice(None, None, None), local shape (256, 64)\n");
  EXPECT_EQ(description(placed(build_mesh({.fsdp = 2, .tensor = 2}, 4)), 8),
            "spec: P(('tensor', 'fsdp'),)\n"
            "  cpu:0: rows slice(0, 64, None), local shape (64, 64)\n"
            "  cpu:1: rows slice(128, 192, None), local shape (64, 64)\n"
            "  cpu:2: rows slice(64, 128, None), local shape (64, 64)\n"
            "  cpu:3: rows slice(192, 256, None), local shape (64, 64)\n");
  EXPECT_EQ(description(placed(build_mesh({.fsdp = 3}, 3), {18}, {"embed"}), 1),
            "spec: P('fsdp',)\n"
            "  cpu:0: rows slice(0, 6, None), local shape (6,)\n");
  EXPECT_EQ(description(placed(build_mesh({}, 1), {}, {})),
            "spec: P()\n"
            "  cpu:0: local shape ()\n");
}

TEST(DrawBlocks, NotebooksMeshes) {
  EXPECT_EQ(drawing(placed(build_mesh({}, 8))),
            "+---------------------+\n"
            "| CPU 0,1,2,3,4,5,6,7 |\n"
            "+---------------------+\n");
  EXPECT_EQ(drawing(placed(build_mesh({.fsdp = 8}, 8))),
            "+-------+\n"
            "| CPU 0 |\n"
            "+-------+\n"
            "| CPU 1 |\n"
            "+-------+\n"
            "| CPU 2 |\n"
            "+-------+\n"
            "| CPU 3 |\n"
            "+-------+\n"
            "| CPU 4 |\n"
            "+-------+\n"
            "| CPU 5 |\n"
            "+-------+\n"
            "| CPU 6 |\n"
            "+-------+\n"
            "| CPU 7 |\n"
            "+-------+\n");
  const Mesh both = build_mesh({.fsdp = 2, .tensor = 4}, 8);
  EXPECT_EQ(drawing(placed(both, {64, 256}, {"embed", "mlp"})),
            "+-------+-------+-------+-------+\n"
            "| CPU 0 | CPU 1 | CPU 2 | CPU 3 |\n"
            "+-------+-------+-------+-------+\n"
            "| CPU 4 | CPU 5 | CPU 6 | CPU 7 |\n"
            "+-------+-------+-------+-------+\n");
  EXPECT_EQ(head(drawing(placed(both)), 6),
            "+-------+\n"
            "| CPU 0 |\n"
            "+-------+\n"
            "| CPU 4 |\n"
            "+-------+\n"
            "| CPU 1 |\n");
}

TEST(DrawBlocks, CopiesAndPartsOfAnAxis) {
  const Mesh mesh = mesh_for_heads(build_mesh({.tensor = 4}, 8), 4, 2);
  EXPECT_EQ(drawing(placed(mesh, {2, 5}, {"kv", "head_dim"})),
            "+-------------+\n"
            "| CPU 0,1,4,5 |\n"
            "+-------------+\n"
            "| CPU 2,3,6,7 |\n"
            "+-------------+\n");
  EXPECT_EQ(drawing(placed(build_mesh({.fsdp = 2}, 32), {64}, {"embed"})),
            "+----------------+----------------+\n"
            "| CPU 0,2,...,30 | CPU 1,3,...,31 |\n"
            "+----------------+----------------+\n");
  EXPECT_EQ(drawing(placed(build_mesh({}, 256), {}, {})),
            "+-----------+\n"
            "| CPU 0-255 |\n"
            "+-----------+\n");
}

TEST(DrawBlocks, MoreDimensions) {
  const Mesh both = build_mesh({.fsdp = 2, .tensor = 2}, 4);
  EXPECT_EQ(drawing(placed(both, {7, 4, 16}, {"embed", "heads", "head_dim"})),
            "dimension 1 downwards, dimension 2 across\n"
            "+-------+-------+\n"
            "| CPU 0 | CPU 2 |\n"
            "+-------+-------+\n"
            "| CPU 1 | CPU 3 |\n"
            "+-------+-------+\n");
  EXPECT_EQ(
      head(drawing(placed(build_mesh({.fsdp = 2}, 2), {7, 5, 16}, {"embed", "heads", "head_dim"})),
           3),
      "dimension 0 downwards, dimension 2 across\n"
      "+-------+-------+\n"
      "| CPU 0 | CPU 1 |\n");
  const Mesh three = build_mesh({.fsdp = 2, .expert = 2, .tensor = 2}, 8);
  try {
    drawing(placed(three, {2, 4, 6}, {"exp", "embed", "mlp"}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_EQ(error.what(),
              std::string("an array split as P('expert', 'fsdp', 'tensor') cannot be drawn: 3 "
                          "dimensions are split, a drawing has 2"));
  }
}

TEST(DrawBlocks, ManyBlocksAreCutShort) {
  const Placed large =
      placed(build_mesh({.fsdp = 64, .tensor = 16}, 1024), {64, 256}, {"embed", "mlp"});
  const std::string text = drawing(large);
  EXPECT_EQ(
      head(text, 2),
      "+----------+----------+----------+----------+----------+----------+-----+----------+\n"
      "| CPU 0    | CPU 1    | CPU 2    | CPU 3    | CPU 4    | CPU 5    | ... | CPU 15   |\n");
  EXPECT_EQ(std::ranges::count(text, '\n'), 65);  // 30 rows, dots, the last row
}

TEST(DrawBlocks, Colors) {
  EXPECT_EQ(drawing(placed(build_mesh({.fsdp = 2}, 2)), /*color=*/true),
            "+-------+\n"
            "|\x1b[30;48;5;117m CPU 0 \x1b[0m|\n"
            "+-------+\n"
            "|\x1b[30;48;5;211m CPU 1 \x1b[0m|\n"
            "+-------+\n");
}

}  // namespace
}  // namespace dew
