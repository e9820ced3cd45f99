#include "dew/generate/cached_transformer.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/compile.h"
#include "dew/train/registers.h"

namespace dew {
namespace {

namespace names = generation;

// Tokens of all texts are in one segment; what nobody sees is in others, and pads see nothing.
constexpr std::int32_t kText = 0, kEmpty = -1, kPad = -2;

void store_rounded(std::span<const float> from, std::byte* to) {
  auto* const out = reinterpret_cast<bf16*>(to);
  std::ranges::transform(from, out, [](float x) { return bf16(x); });
}

}  // namespace

CachedTransformer::CachedTransformer(const models::CausalTransformer& model,
                                     const CacheShape& shape, DType compute, Backend& backend)
    : model_(model), shape_(shape), compute_(compute) {
  DEW_CHECK(shape.rows > 0 && shape.capacity > 0 && shape.chunk > 0, "an empty cache");
  const std::int64_t most = model.config().max_seq_len;
  if (most > 0 && shape.capacity > most) {
    fail(ErrorCode::usage,
         format("a cache of {} tokens is above model.max_seq_len = {}", shape.capacity, most));
  }
  executable_ = compile(generation_module(model, shape, compute), backend);
  decode_ = find_call(names::kDecode, 1);
  prefill_ = shape.chunk > 1 ? find_call(names::kPrefill, shape.chunk) : decode_;
  last_logits_ = values<float>(names::kLogits);
  lengths_.resize(static_cast<std::size_t>(shape.rows));
  logits_.resize(static_cast<std::size_t>(shape.rows * model.config().vocab_size));
  reset();
}

template <class T>
std::span<T> CachedTransformer::values(const std::string& reg) const {
  const std::span<std::byte> bytes =
      executable_->shards(executable_->module().register_index(reg)).front().bytes;
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

CachedTransformer::Call CachedTransformer::find_call(const char* program,
                                                     std::int64_t tokens) const {
  const auto at = [&](const char* name) {
    return values<std::int32_t>(program + std::string(name));
  };
  return {.list = executable_->module().list_index(program),
          .tokens = tokens,
          .ids = at(names::kIds),
          .positions = at(names::kPositions),
          .segments = at(names::kSegments),
          .columns = at(names::kColumns),
          .last = at(names::kLast)};
}

void CachedTransformer::load(const ReadLayer& read) {
  std::vector<float> layer;
  for (const ParamSpec& param : model_.params()) {
    const auto count = static_cast<std::size_t>(param.layer_elements());
    const bool rounded = parameter_dtype(param, compute_) != DType::f32;
    const std::span<std::byte> all = values<std::byte>(registers::parameter(param.name));
    if (rounded) layer.resize(count);
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
      const std::size_t size = count * (rounded ? sizeof(bf16) : sizeof(float));
      std::byte* const to = all.data() + static_cast<std::size_t>(slot) * size;
      if (rounded) {
        read(param, slot, layer);
        store_rounded(layer, to);
      } else {
        read(param, slot, {reinterpret_cast<float*>(to), count});
      }
    }
  }
}

void CachedTransformer::load(const CheckpointReader& reader) {
  load([&](const ParamSpec& param, std::int64_t slot, std::span<float> out) {
    const std::string name = registers::parameter(param.layer_name(slot));
    reader.read(reader.require(name, DType::f32, param.layer_shape()), std::as_writable_bytes(out));
  });
}

void CachedTransformer::reset() {
  std::ranges::fill(values<std::int32_t>(names::kCachedSegments), kEmpty);
  std::ranges::fill(lengths_, 0);
}

bool CachedTransformer::read(std::span<const Ids> rows, const std::function<bool()>& should_stop) {
  DEW_CHECK(static_cast<std::int64_t>(rows.size()) == shape_.rows, "texts of another batch");
  std::int64_t longest = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto count = static_cast<std::int64_t>(rows[r].size());
    DEW_CHECK(count <= room(static_cast<std::int64_t>(r)), "the cache is full");
    longest = std::max(longest, count);
  }
  for (std::int64_t begin = 0; begin < longest;) {
    if (begin > 0 && should_stop && should_stop()) return false;
    const Call& call = longest - begin == 1 ? decode_ : prefill_;
    for (std::int64_t r = 0; r < shape_.rows; ++r)
      place(call, r, rows[static_cast<std::size_t>(r)], begin);
    executable_->run(call.list);
    for (std::int64_t r = 0; r < shape_.rows; ++r) {
      const auto count = static_cast<std::int64_t>(rows[static_cast<std::size_t>(r)].size());
      if (count > begin && count <= begin + call.tokens) keep_logits(r);
    }
    begin += call.tokens;
  }
  return true;
}

void CachedTransformer::place(const Call& call, std::int64_t row, Ids ids, std::int64_t begin) {
  std::int64_t& length = lengths_[static_cast<std::size_t>(row)];
  const auto count = static_cast<std::int64_t>(ids.size());
  for (std::int64_t t = 0; t < call.tokens; ++t) {
    const auto at = static_cast<std::size_t>(row * call.tokens + t);
    const bool real = begin + t < count;
    call.ids[at] = real ? ids[static_cast<std::size_t>(begin + t)] : 0;
    call.positions[at] = real ? static_cast<std::int32_t>(length) : 0;
    call.segments[at] = real ? kText : kPad;
    call.columns[at] = real ? static_cast<std::int32_t>(length) : -1;
    if (real) ++length;
  }
  call.last[static_cast<std::size_t>(row)] =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(count - 1 - begin, 0, call.tokens - 1));
}

void CachedTransformer::keep_logits(std::int64_t row) {
  const auto size = static_cast<std::size_t>(model_.config().vocab_size);
  const std::size_t begin = static_cast<std::size_t>(row) * size;
  std::ranges::copy(last_logits_.subspan(begin, size),
                    logits_.begin() + static_cast<std::ptrdiff_t>(begin));
}

std::span<const float> CachedTransformer::logits(std::int64_t row) const {
  const auto size = static_cast<std::size_t>(model_.config().vocab_size);
  return std::span(logits_).subspan(static_cast<std::size_t>(row) * size, size);
}

}  // namespace dew
