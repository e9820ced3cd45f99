#include "dew/sharding/describe.h"

#include <algorithm>
#include <array>
#include <map>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::int64_t kMostRows = 32, kMostColumns = 8;  // of blocks in a drawing
constexpr std::int64_t kNotDrawn = -1;
constexpr std::string_view kDots = "...";

// As Python writes it: (32, 64), (32,), ().
std::string tuple_text(const Dims& shape) {
  return format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

std::string rows_text(const Mesh& mesh, const Spec& spec, const Dims& local, std::int64_t device) {
  if (local.empty()) return "";
  if (spec.dims[0].empty()) return "rows slice(None, None, None), ";
  const std::int64_t first = mesh.block(spec.dims[0], device) * local[0];
  return format("rows slice({}, {}, None), ", first, first + local[0]);
}

void check(const Mesh& mesh, const Spec& spec, const Dims& shape) {
  DEW_CHECK(spec.partial == 0 && divides(mesh, shape, spec),
            format("[{}] as {}", join(shape), to_string(mesh, spec)));
}

// ---- the drawing

// The dimensions that are drawn downwards and across; -1 for a side that the array does not have.
struct Sides {
  std::int64_t down = -1, across = -1;
};

Sides sides_of(const Mesh& mesh, const Spec& spec, const Dims& shape) {
  const auto rank = std::ssize(shape);
  if (rank < 2) return {-1, rank - 1};
  std::vector<std::int64_t> split;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (!spec.dims[static_cast<std::size_t>(d)].empty()) split.push_back(d);
  }
  if (split.size() > 2) {
    fail(ErrorCode::usage, format("an array split as {} cannot be drawn: {} dimensions are split, "
                                  "a drawing has 2",
                                  to_user_string(mesh, spec), split.size()));
  }
  if (split.size() == 2) return {split[0], split[1]};
  // Beside the one that is split, the first other one.
  const std::int64_t one = split.empty() ? 0 : split[0];
  return one == 0 ? Sides{0, 1} : Sides{0, one};
}

// Blocks of a side that are drawn, in order; kNotDrawn stands for those left out.
std::vector<std::int64_t> drawn(std::int64_t blocks, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t b = 0; b < blocks; ++b) {
    if (blocks <= most || b < most - 2 || b == blocks - 1) {
      out.push_back(b);
    } else if (out.back() != kNotDrawn) {
      out.push_back(kNotDrawn);
    }
  }
  return out;
}

// "CPU 0,1,2", "CPU 0-255", "CPU 0,16,...,240"
std::string devices_text(const std::vector<std::int64_t>& devices) {
  constexpr std::size_t kAll = 8;
  if (devices.size() <= kAll) return format("CPU {}", fmt::join(devices, ","));
  const std::int64_t first = devices.front(), last = devices.back();
  if (last - first + 1 == std::ssize(devices)) return format("CPU {}-{}", first, last);
  return format("CPU {},{},...,{}", first, devices[1], last);
}

std::string colored(const std::string& text, std::int64_t row, std::int64_t column) {
  // Backgrounds of the 256-color table on which black is readable. Steps of 3 and 1 among 8 give
  // neighbours different ones.
  constexpr std::array kColors = {117, 180, 114, 211, 229, 147, 216, 152};
  const auto n = static_cast<std::size_t>(3 * row + column) % kColors.size();
  return format("\x1b[30;48;5;{}m{}\x1b[0m", kColors[n], text);
}

class Drawing {
 public:
  Drawing(const Mesh& mesh, const Spec& spec, const Dims& shape) {
    const Sides sides = sides_of(mesh, spec, shape);
    const std::vector<int> down = atoms_of(spec, sides.down), across = atoms_of(spec, sides.across);
    for (std::int64_t device = 0; device < mesh.devices(); ++device)
      held_[{mesh.block(down, device), mesh.block(across, device)}].push_back(device);
    rows_ = drawn(mesh.product(down), kMostRows);
    columns_ = drawn(mesh.product(across), kMostColumns);
    if (shape.size() > 2) {
      heading_ = format("dimension {} downwards, dimension {} across\n", sides.down, sides.across);
    }
  }

  std::string text(bool color) const {
    const std::string rule = this->rule();
    std::string out = heading_ + rule;
    for (const std::int64_t row : rows_) {
      for (const std::int64_t column : columns_) out += "|" + cell(row, column, color);
      out += "|\n" + rule;
    }
    return out;
  }

 private:
  static std::vector<int> atoms_of(const Spec& spec, std::int64_t dim) {
    return dim < 0 ? std::vector<int>() : spec.dims[static_cast<std::size_t>(dim)];
  }

  std::string plain(std::int64_t row, std::int64_t column) const {
    const bool dots = row == kNotDrawn || column == kNotDrawn;
    return dots ? std::string(kDots) : devices_text(held_.at({row, column}));
  }

  std::size_t width(std::int64_t column) const {
    std::size_t most = 0;
    for (const std::int64_t row : rows_) {
      // Dots for rows need no more room than they find.
      if (row != kNotDrawn || column == kNotDrawn) most = std::max(most, plain(row, column).size());
    }
    return most;
  }

  std::string cell(std::int64_t row, std::int64_t column, bool color) const {
    const std::string text = format(" {:<{}} ", plain(row, column), width(column));
    const bool block = row != kNotDrawn && column != kNotDrawn;
    return color && block ? colored(text, row, column) : text;
  }

  std::string rule() const {
    std::string out;
    for (const std::int64_t column : columns_) out += "+" + std::string(width(column) + 2, '-');
    return out + "+\n";
  }

  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> held_;
  std::vector<std::int64_t> rows_, columns_;
  std::string heading_;
};

}  // namespace

std::string describe(const Mesh& mesh, const Spec& spec, const Dims& shape, std::int64_t devices) {
  check(mesh, spec, shape);
  const Dims local = local_shape(mesh, shape, spec);
  std::string text = format("spec: {}\n", to_user_string(mesh, spec));
  for (std::int64_t d = 0; d < std::min(devices, mesh.devices()); ++d) {
    text += format("  cpu:{}: {}local shape {}\n", d, rows_text(mesh, spec, local, d),
                   tuple_text(local));
  }
  return text;
}

std::string draw_blocks(const Mesh& mesh, const Spec& spec, const Dims& shape, bool color) {
  check(mesh, spec, shape);
  return Drawing(mesh, spec, shape).text(color);
}

}  // namespace dew
