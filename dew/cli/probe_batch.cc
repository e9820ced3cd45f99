#include "dew/cli/probe_batch.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "dew/base/format.h"
#include "dew/checkpoint/box.h"
#include "dew/checkpoint/safetensors.h"

namespace dew::cli {
namespace {

constexpr ErrorCode kCode = ErrorCode::data;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kIgnored = -100;

// What the elements of a tensor may be.
struct Range {
  std::int64_t least = 0, most = 0;
  std::optional<std::int64_t> also = {};
};

std::string to_text(const Range& range) {
  std::string text = format("from {} to {}", range.least, range.most);
  return range.also ? text + format(", or {}", *range.also) : text;
}

class BatchFile {
 public:
  explicit BatchFile(const Path& path) : file_(path, kCode) {
    shape_ = find("input_ids").shape;
    const bool sizes = shape_.size() == 2 && std::ranges::all_of(shape_, [](std::int64_t n) {
                         return n >= 1 && n <= kMost;
                       });
    if (!sizes) {
      refuse(
          "'input_ids' is [{}], but it must be [rows, length] with one row and one token or "
          "more",
          join(shape_));
    }
  }

  std::int64_t rows() const { return shape_[0]; }
  std::int64_t length() const { return shape_[1]; }
  bool has(const char* name) const { return file_.find(name) != nullptr; }

  std::vector<std::int32_t> read(const char* name, const Range& range) const {
    const StoredTensor& tensor = find(name);
    if (is_float(tensor.type) || tensor.type == StoredType::boolean) {
      refuse("'{}' is {}, but it must be integers", name, dew::name(tensor.type));
    }
    if (tensor.shape != shape_) {
      refuse("'{}' is [{}], but 'input_ids' is [{}]: they must be equal", name, join(tensor.shape),
             join(shape_));
    }
    std::vector<std::int64_t> values(static_cast<std::size_t>(element_count(shape_)));
    read_integers(tensor.type, file_.bytes(tensor), values, kCode);
    std::vector<std::int32_t> out;
    out.reserve(values.size());
    for (const std::int64_t value : values) {
      const bool fits = (value >= range.least && value <= range.most) || value == range.also;
      if (!fits) {
        const auto at = static_cast<std::int64_t>(out.size());
        refuse("{}[{},{}] = {}, but it must be {}", name, at / length(), at % length(), value,
               to_text(range));
      }
      out.push_back(static_cast<std::int32_t>(value));
    }
    return out;
  }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(kCode,
         format("{}: {}", file_.path().string(), fmt::format(text, std::forward<Args>(args)...)));
  }

 private:
  const StoredTensor& find(const char* name) const {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) {
      std::vector<std::string> names;
      for (const StoredTensor& t : file_.tensors()) names.push_back(in_quotes(t.name));
      names.resize(std::min<std::size_t>(names.size(), 8));
      refuse("there is no tensor '{}'; it has: {}", name, fmt::join(names, ", "));
    }
    return *tensor;
  }

  SafetensorsFile file_;
  Dims shape_;
};

// Position t predicts the label of t + 1; the last one predicts nothing.
void shift_labels(const BatchFile& file, const std::vector<std::int32_t>& labels,
                  StepBatch& batch) {
  batch.labels.assign(labels.size(), 0);
  batch.weights.assign(labels.size(), 0.0f);
  for (std::size_t i = 0; i + 1 < labels.size(); ++i) {
    const bool last = (static_cast<std::int64_t>(i) + 1) % file.length() == 0;
    if (last || labels[i + 1] == kIgnored) continue;
    batch.labels[i] = labels[i + 1];
    batch.weights[i] = 1.0f;
    batch.weight_sum += 1;
  }
  if (batch.weight_sum == 0) {
    file.refuse("no label counts: each is {} or the first of its row, which nothing predicts",
                kIgnored);
  }
}

}  // namespace

StepBatch read_probe_batch(const Path& path, const models::TransformerConfig& model) {
  const BatchFile file(path);
  StepBatch batch;
  batch.micro_steps = 1;
  batch.rows = file.rows();
  batch.width = file.length();
  if (model.max_seq_len > 0 && batch.width > model.max_seq_len) {
    file.refuse("rows of {} tokens, but the model's rows have at most {}", batch.width,
                model.max_seq_len);
  }
  batch.ids = file.read("input_ids", {0, model.vocab_size - 1});
  shift_labels(file, file.read("labels", {0, model.vocab_size - 1, kIgnored}), batch);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    batch.row_ids.push_back(static_cast<std::int32_t>(row));
  }
  for (std::int64_t column = 0; column < batch.width; ++column) {
    batch.columns.push_back(static_cast<std::int32_t>(column));
  }
  if (file.has("positions")) {
    batch.positions =
        file.read("positions", {0, model.positions == "learned" ? model.max_seq_len - 1 : kMost});
  } else {
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      batch.positions.insert(batch.positions.end(), batch.columns.begin(), batch.columns.end());
    }
  }
  batch.segments = file.has("segment_ids") ? file.read("segment_ids", {kLeast, kMost})
                                           : std::vector<std::int32_t>(batch.ids.size(), 0);
  batch.real_tokens = static_cast<std::int64_t>(batch.ids.size());
  return batch;
}

StepBatch spread(const StepBatch& batch, const DispatchPlan& plan) {
  StepBatch out = batch;
  out.rows = plan.physical_batch();
  out.row_ids.assign(static_cast<std::size_t>(out.rows), -1);
  const auto width = static_cast<std::ptrdiff_t>(batch.width);
  const auto put_rows = [&](const auto& from, auto& to, auto pad) {
    to.clear();
    for (std::int64_t row = 0; row < out.rows; ++row) {
      for (const std::int32_t column : batch.columns) to.push_back(pad(column));
    }
    for (std::int64_t g = 0; g < batch.rows; ++g) {
      std::copy_n(from.begin() + g * width, width, to.begin() + physical_row(plan, g) * width);
    }
  };
  const auto zero = [](std::int32_t) { return 0; };
  put_rows(batch.ids, out.ids, zero);
  put_rows(batch.labels, out.labels, zero);
  put_rows(batch.weights, out.weights, [](std::int32_t) { return 0.0f; });
  put_rows(batch.positions, out.positions, [](std::int32_t column) { return column; });
  put_rows(batch.segments, out.segments, [](std::int32_t column) { return -1 - column; });
  for (std::int64_t g = 0; g < batch.rows; ++g) {
    out.row_ids[static_cast<std::size_t>(physical_row(plan, g))] = static_cast<std::int32_t>(g);
  }
  return out;
}

std::int64_t physical_row(const DispatchPlan& plan, std::int64_t row) {
  const Place place = plan.place(row);
  return place.shard * plan.micro_batch() + place.slot;
}

}  // namespace dew::cli
