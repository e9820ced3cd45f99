// Norms and their gradients: cuts rows into pieces, and brings rows of any strides into the form
// that norm_rows.cc takes.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"
#include "dew/runtime/cpu/kernels/norm_rows.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;
constexpr std::int64_t kChunkRows =
    64;  // rows whose sums are added up before they join the piece's
constexpr std::int64_t kTileElements = 4096;  // of rows that must be copied
constexpr std::int64_t kSumColumns = 256;     // of a piece that adds up the pieces' sums

// Which operand is what; -1: there is none.
struct Places {
  int x, scale, bias, mean, r, g;  // inputs, and the statistics of gradients
  int y, out_mean, out_r;          // outputs
  int dscale, dbias;
};
constexpr Places kRms = {0, 1, -1, -1, -1, -1, 0, -1, 1, -1, -1};
constexpr Places kLayer = {0, 1, 2, -1, -1, -1, 0, 1, 2, -1, -1};
constexpr Places kRmsGrad = {0, 1, -1, -1, 2, 3, 0, -1, -1, 1, -1};
constexpr Places kLayerGrad = {0, 1, -1, 2, 3, 4, 0, -1, -1, 1, 2};

class Norm final : public Kernel {
 public:
  Norm(const Step& step, const Places& places, const NormTable::Routine (&routines)[2], bool& taken,
       std::string& why_not)
      : at_(places), inputs_(step.inputs.size()) {
    for (const auto* views : {&step.inputs, &step.outputs}) {
      for (const View& v : *views) {
        const auto s = strided(v);
        if (!s) why_not = "too many dimensions";
        views_.push_back(s.value_or(Strided()));
      }
    }
    for (std::size_t k = 0; k < views_.size(); ++k) {
      const bool rows = is_rows(k);
      const DType dtype = views_[k].dtype;
      if (!(dtype == DType::f32 || (rows && dtype == DType::bf16)))
        why_not = format("operand {} is {}", k, name(dtype));
      if (!rows && !views_[k].dense()) why_not = format("operand {} is not dense", k);
    }
    taken = why_not.empty();
    if (!taken) return;
    const Dims& shape = step.inputs[0].type.shape;
    e_ = shape.back();
    rows_ = element_count(std::span(shape).first(shape.size() - 1));
    if (const auto* number = std::get_if<Number>(&step.attrs))
      epsilon_ = static_cast<float>(number->value);
    choose_form(routines);
    cut();
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0)
      run_rows(args, piece);
    else
      add_sums(args, piece);
  }

 private:
  bool has_sums() const { return at_.dscale >= 0; }
  std::size_t input(int i) const { return static_cast<std::size_t>(i); }
  std::size_t output(int o) const { return inputs_ + static_cast<std::size_t>(o); }
  bool is_rows(std::size_t k) const {
    return k == input(at_.x) || k == output(at_.y) || (at_.g >= 0 && k == input(at_.g));
  }

  // Rows of one dtype that lie one behind the other are read where they are; others pass through
  // tiles of f32.
  void choose_form(const NormTable::Routine (&routines)[2]) {
    const DType dtype = views_[0].dtype;
    in_place_ = true;
    for (std::size_t k = 0; k < views_.size(); ++k) {
      if (is_rows(k)) in_place_ = in_place_ && views_[k].dense() && views_[k].dtype == dtype;
    }
    routine_ = routines[in_place_ && dtype == DType::bf16 ? 1 : 0];
    chunk_ = in_place_ ? kChunkRows
                       : std::clamp<std::int64_t>(kTileElements / std::max<std::int64_t>(1, e_), 1,
                                                  kChunkRows);
  }

  void cut() {
    const std::int64_t e = std::max<std::int64_t>(1, e_);
    pieces_ = cut_pieces(rows_, std::max<std::int64_t>(1, kPieceElements / e), 1);
    phases_ = {pieces_.count};
    std::size_t floats = in_place_ ? 0 : 3 * tile_floats();
    if (has_sums()) {
      phases_.push_back(
          static_cast<int>(std::max<std::int64_t>(1, (e_ + kSumColumns - 1) / kSumColumns)));
      shared_scratch_ = static_cast<std::size_t>(pieces_.count) * 2 * sum_floats() * sizeof(float);
      floats += 2 * sum_floats();
    }
    worker_scratch_ = floats * sizeof(float);
  }

  std::size_t tile_floats() const { return static_cast<std::size_t>((chunk_ * e_ + 15) / 16 * 16); }
  std::size_t sum_floats() const { return static_cast<std::size_t>((e_ + 15) / 16 * 16); }
  float* piece_sums(const KernelArgs& args, int piece) const {
    return reinterpret_cast<float*>(args.shared) +
           static_cast<std::size_t>(piece) * 2 * sum_floats();
  }

  void run_rows(const KernelArgs& args, int piece) const {
    const std::int64_t begin = piece * pieces_.size, end = std::min(begin + pieces_.size, rows_);
    if (has_sums()) std::memset(piece_sums(args, piece), 0, 2 * sum_floats() * sizeof(float));
    for (std::int64_t row = begin; row < end; row += chunk_)
      run_chunk(args, piece, row, std::min(chunk_, end - row));
  }

  const float* floats(const KernelArgs& args, int i, std::int64_t offset = 0) const {
    return i < 0 ? nullptr : reinterpret_cast<const float*>(args.operands[i]) + offset;
  }

  void run_chunk(const KernelArgs& args, int piece, std::int64_t row, std::int64_t count) const {
    NormRows rows;
    rows.rows = count;
    rows.e = e_;
    rows.epsilon = epsilon_;
    rows.scale = floats(args, at_.scale);
    rows.bias = floats(args, at_.bias);
    // The routines write statistics in one direction only; gradients read them.
    rows.mean = const_cast<float*>(floats(args, at_.mean, row));
    rows.r = const_cast<float*>(floats(args, at_.r, row));
    if (at_.out_mean >= 0)
      rows.mean = reinterpret_cast<float*>(args.operands[output(at_.out_mean)]) + row;
    if (at_.out_r >= 0) rows.r = reinterpret_cast<float*>(args.operands[output(at_.out_r)]) + row;
    auto* scratch = reinterpret_cast<float*>(args.worker);
    if (has_sums()) {
      rows.dscale = scratch;
      rows.dbias = scratch + sum_floats();
      std::memset(scratch, 0, 2 * sum_floats() * sizeof(float));
      scratch += 2 * sum_floats();
    }
    if (e_ > 0)
      compute(args, rows, row, scratch);
    else
      clear_statistics(rows);
    if (has_sums())
      norm_table().add(rows.dscale, piece_sums(args, piece),
                       static_cast<std::int64_t>(2 * sum_floats()));
  }

  void clear_statistics(const NormRows& rows) const {
    if (at_.out_mean >= 0) std::fill_n(rows.mean, rows.rows, 0.0f);
    if (at_.out_r >= 0) std::fill_n(rows.r, rows.rows, 0.0f);
  }

  void compute(const KernelArgs& args, NormRows& rows, std::int64_t row, float* tiles) const {
    const std::size_t x = input(at_.x), y = output(at_.y), g = at_.g < 0 ? x : input(at_.g);
    const std::int64_t first = row * e_;
    if (in_place_) {
      const std::int64_t offset = first * byte_size(views_[x].dtype);
      rows.x = args.operands[x] + offset;
      rows.g = args.operands[g] + offset;
      rows.y = args.operands[y] + offset;
      return routine_(rows);
    }
    const RangeIo& io = range_io();
    const auto n = static_cast<std::size_t>(rows.rows * e_);
    rows.x = as_bytes(read_range(io, views_[x], args.operands[x], first, n, tiles));
    rows.g = as_bytes(read_range(io, views_[g], args.operands[g], first, n, tiles + tile_floats()));
    float* const to = write_target(views_[y], args.operands[y], first, tiles + 2 * tile_floats());
    rows.y = reinterpret_cast<std::byte*>(to);
    routine_(rows);
    write_range(io, views_[y], args.operands[y], first, n, to);
  }

  static const std::byte* as_bytes(const float* p) { return reinterpret_cast<const std::byte*>(p); }

  // The pieces' sums, in order.
  void add_sums(const KernelArgs& args, int piece) const {
    const std::int64_t begin = piece * kSumColumns, n = std::min(kSumColumns, e_ - begin);
    if (n <= 0) return;
    const auto into = [&](int o, std::size_t offset) {
      if (o < 0) return;
      auto* const to = reinterpret_cast<float*>(args.operands[output(o)]) + begin;
      std::memcpy(to, piece_sums(args, 0) + offset + begin,
                  static_cast<std::size_t>(n) * sizeof(float));
      for (int k = 1; k < pieces_.count; ++k)
        norm_table().add(piece_sums(args, k) + offset + begin, to, n);
    };
    into(at_.dscale, 0);
    into(at_.dbias, sum_floats());
  }

  Places at_;
  std::size_t inputs_;
  std::vector<Strided> views_;
  std::int64_t e_ = 0, rows_ = 0, chunk_ = 1;
  float epsilon_ = 0;
  bool in_place_ = false;
  NormTable::Routine routine_ = nullptr;
  Pieces pieces_;
};

std::unique_ptr<Kernel> make(const Step& step, const OpDef& op, const Places& places,
                             const NormTable::Routine (&routines)[2], std::string& why_not) {
  if (step.op != &op) {
    why_not = "another op";
    return nullptr;
  }
  bool taken = false;
  auto kernel = std::make_unique<Norm>(step, places, routines, taken, why_not);
  return taken ? std::move(kernel) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_rms_norm(const Step& step, std::string& why_not) {
  return make(step, rms_norm_op, kRms, norm_table().rms, why_not);
}
std::unique_ptr<Kernel> make_rms_norm_grad(const Step& step, std::string& why_not) {
  return make(step, rms_norm_grad_op, kRmsGrad, norm_table().rms_grad, why_not);
}
std::unique_ptr<Kernel> make_layer_norm(const Step& step, std::string& why_not) {
  return make(step, layer_norm_op, kLayer, norm_table().layer, why_not);
}
std::unique_ptr<Kernel> make_layer_norm_grad(const Step& step, std::string& why_not) {
  return make(step, layer_norm_grad_op, kLayerGrad, norm_table().layer_grad, why_not);
}

}  // namespace dew::cpu
