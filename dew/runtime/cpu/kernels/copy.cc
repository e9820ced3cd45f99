// Copies between strided views, and what consists of them: pad and concatenate.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 32 * 1024;
constexpr std::int64_t kSide = kTransposeSide;  // of the blocks in which dimensions change places

struct Dim {
  std::int64_t size, from, to;  // strides in elements
};

// One copy. The dimensions may be walked in any order; here that of the result's memory, so that it
// is written forwards.
class Copy {
 public:
  // Empty with more than kMaxRank dimensions.
  static std::optional<Copy> make(const Dims& shape, const Dims& from, const Dims& to,
                                  std::int64_t element_bytes) {
    std::vector<Dim> dims;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != 1) dims.push_back({shape[d], from[d], to[d]});
    }
    std::stable_sort(dims.begin(), dims.end(),
                     [](const Dim& a, const Dim& b) { return a.to > b.to; });
    Copy c;
    c.bytes_ = element_bytes;
    c.elements_ = element_count(shape);
    if (!c.set_dims(dims)) return std::nullopt;
    return c;
  }

  const Pieces& pieces() const { return pieces_; }

  void run(const std::byte* from, std::byte* to, int piece) const {
    const std::int64_t begin = piece * pieces_.size;
    if (elements_ == 0) return;
    if (transposes_) {
      const std::int64_t end = std::min(begin + pieces_.size, from_.elements);
      for (std::int64_t block = begin; block < end; ++block) transpose(from, to, block);
    } else {
      copy_runs(from, to, begin, std::min(begin + pieces_.size, elements_));
    }
  }

 private:
  static Strided walk(const std::vector<Dim>& dims, std::int64_t Dim::*stride) {
    Strided s;
    s.rank = std::max(1, static_cast<int>(dims.size()));
    s.sizes[0] = s.elements = 1;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      s.sizes[d] = dims[d].size;
      s.strides[d] = dims[d].*stride;
      s.elements *= dims[d].size;
    }
    return s;
  }

  bool set_dims(std::vector<Dim> dims) {
    std::vector<Dim> merged;
    for (const Dim& d : dims) {
      const bool goes_on = !merged.empty() && merged.back().from == d.from * d.size &&
                           merged.back().to == d.to * d.size;
      if (goes_on)
        merged.back() = {merged.back().size * d.size, d.from, d.to};
      else
        merged.push_back(d);
    }
    if (merged.size() > static_cast<std::size_t>(kMaxRank)) return false;
    // Two dimensions change places: the innermost of the result, and the one whose elements lie
    // side by side in the operand.
    const auto rows =
        std::find_if(merged.begin(), merged.end(), [](const Dim& d) { return d.from == 1; });
    transposes_ = merged.size() >= 2 && rows != merged.end() && rows + 1 != merged.end() &&
                  merged.back().to == 1;
    if (transposes_) {
      rows_ = *rows;
      columns_ = merged.back();
      merged.pop_back();
      merged.erase(rows);
      row_blocks_ = (rows_.size + kSide - 1) / kSide;
      column_blocks_ = (columns_.size + kSide - 1) / kSide;
    }
    from_ = walk(merged, &Dim::from);
    to_ = walk(merged, &Dim::to);
    if (transposes_) from_.elements *= row_blocks_ * column_blocks_;  // blocks
    pieces_ = transposes_ ? cut_pieces(from_.elements, kPieceElements / (kSide * kSide), 1)
                          : cut_pieces(elements_, kPieceElements, 64);
    return true;
  }

  void copy_runs(const std::byte* from, std::byte* to, std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return;
    Runs source(from_, begin), target(to_, begin);
    while (begin < end) {
      const std::int64_t n = std::min(source.left(), end - begin);
      copy_run(from + source.offset() * bytes_, to + target.offset() * bytes_, n);
      source.advance(n);
      target.advance(n);
      begin += n;
    }
  }

  void copy_run(const std::byte* from, std::byte* to, std::int64_t n) const {
    if (from_.step() == 1 && to_.step() == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(n * bytes_));
    } else if (bytes_ == 4) {
      steps<std::uint32_t>(from, to, n);
    } else if (bytes_ == 2) {
      steps<std::uint16_t>(from, to, n);
    } else {
      steps<std::uint8_t>(from, to, n);
    }
  }

  template <class T>
  void steps(const std::byte* from, std::byte* to, std::int64_t n) const {
    const std::int64_t a = from_.step() * bytes_, b = to_.step() * bytes_;
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * b, from + i * a, sizeof(T));
  }

  void transpose(const std::byte* from, std::byte* to, std::int64_t block) const {
    const std::int64_t column = block / row_blocks_ % column_blocks_ * kSide,
                       row = block % row_blocks_ * kSide;
    const std::int64_t outer = block / column_blocks_ / row_blocks_;
    from += (Runs(from_, outer).offset() + row * rows_.from + column * columns_.from) * bytes_;
    to += (Runs(to_, outer).offset() + row * rows_.to + column * columns_.to) * bytes_;
    const std::int64_t rows = std::min(kSide, rows_.size - row),
                       columns = std::min(kSide, columns_.size - column);
    range_io().transpose(bytes_, from, columns_.from, to, rows_.to, rows, columns);
  }

  std::int64_t bytes_ = 4, elements_ = 0;
  Strided from_, to_;  // without rows and columns, if they change places
  bool transposes_ = false;
  Dim rows_ = {}, columns_ = {};
  std::int64_t row_blocks_ = 1, column_blocks_ = 1;
  Pieces pieces_;
};

// Copies of parts of operands into parts of the result, which may be cleared before.
class Copies final : public Kernel {
 public:
  Copies(std::size_t inputs, std::int64_t element_bytes) : inputs_(inputs), bytes_(element_bytes) {
    phases_ = {0};
    implementation_ = "highway";
  }

  void clear_first(std::int64_t elements) {
    clear_ = cut_pieces(elements, kPieceElements, 1024);
    cleared_ = elements;
    phases_ = {clear_.count, 0};
  }

  bool add(std::size_t input, const View& in, const View& out, const Dims& shape, std::int64_t from,
           std::int64_t to) {
    const auto copy = Copy::make(shape, in.strides, out.strides, bytes_);
    if (!copy) return false;
    parts_.push_back(
        {*copy, input, from * bytes_, to * bytes_, phases_.back(), in.strides == out.strides});
    phases_.back() += copy->pieces().count;
    return true;
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    std::byte* const out = args.operands[inputs_];
    if (phase + 1 < static_cast<int>(phases_.size())) {
      const std::int64_t begin = piece * clear_.size, n = std::min(clear_.size, cleared_ - begin);
      if (n > 0) std::memset(out + begin * bytes_, 0, static_cast<std::size_t>(n * bytes_));
      return;
    }
    auto part = parts_.rbegin();
    while (part->first > piece) ++part;
    const std::byte* const in = args.operands[part->input];
    if (part->same_strides && in + part->from == out + part->to) return;  // it is there already
    part->copy.run(in + part->from, out + part->to, piece - part->first);
  }

 private:
  struct Part {
    Copy copy;
    std::size_t input;
    std::int64_t from, to;  // bytes
    int first;              // piece
    bool same_strides;
  };

  std::size_t inputs_;
  std::int64_t bytes_, cleared_ = 0;
  Pieces clear_;
  std::vector<Part> parts_;
};

std::int64_t offset_of(const Dims& index, const Dims& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

std::unique_ptr<Kernel> refuse(std::string& why_not, std::string reason) {
  why_not = std::move(reason);
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_copy(const Step& step, std::string& why_not) {
  const bool copies = step.op == nullptr && step.group.outputs.empty() && step.inputs.size() == 1 &&
                      step.outputs.size() == 1;
  if (!copies) return refuse(why_not, "not a copy");
  const View &in = step.inputs[0], &out = step.outputs[0];
  if (in.type != out.type)
    return refuse(why_not, format("copies {} to {}", to_string(in.type), to_string(out.type)));
  auto kernel = std::make_unique<Copies>(1, byte_size(in.type.dtype));
  if (!kernel->add(0, in, out, in.type.shape, 0, 0)) return refuse(why_not, "too many dimensions");
  return kernel;
}

std::unique_ptr<Kernel> make_pad(const Step& step, std::string& why_not) {
  if (step.op != &pad_op) return refuse(why_not, "another op");
  const View &in = step.inputs[0], &out = step.outputs[0];
  const auto whole = strided(out);
  if (!whole || !whole->dense()) return refuse(why_not, "the result has gaps");
  auto kernel = std::make_unique<Copies>(1, byte_size(in.type.dtype));
  kernel->clear_first(whole->elements);
  const std::int64_t to = offset_of(std::get<PadDims>(step.attrs).low, out.strides);
  if (!kernel->add(0, in, out, in.type.shape, 0, to)) return refuse(why_not, "too many dimensions");
  return kernel;
}

std::unique_ptr<Kernel> make_concatenate(const Step& step, std::string& why_not) {
  if (step.op != &concatenate_op) return refuse(why_not, "another op");
  const View& out = step.outputs[0];
  const auto dim = static_cast<std::size_t>(std::get<Axes>(step.attrs).dims[0]);
  auto kernel = std::make_unique<Copies>(step.inputs.size(), byte_size(out.type.dtype));
  std::int64_t at = 0;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const View& in = step.inputs[i];
    if (!kernel->add(i, in, out, in.type.shape, 0, at * out.strides[dim]))
      return refuse(why_not, "too many dimensions");
    at += in.type.shape[dim];
  }
  return kernel;
}

}  // namespace dew::cpu
