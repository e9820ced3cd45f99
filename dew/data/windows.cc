#include "dew/data/windows.h"

#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

std::int64_t count_records(const TokenFile& tokens, std::int64_t seq_len, std::int64_t stride) {
  if (seq_len < 1) fail(ErrorCode::usage, format("seq_len = {}, must be at least 1", seq_len));
  if (stride < 1) fail(ErrorCode::usage, format("stride = {}, must be at least 1", stride));
  // In this order nothing overflows, whatever seq_len is.
  if (tokens.size() <= seq_len) {
    fail(ErrorCode::data,
         format("{}: {} ids are fewer than one window of {} + 1 ids", tokens.path().string(),
                tokens.size(), seq_len),
         "choose a shorter seq_len or give more text");
  }
  return (tokens.size() - seq_len - 1) / stride + 1;
}

}  // namespace

Windows::Windows(std::shared_ptr<const TokenFile> tokens, std::int64_t seq_len, std::int64_t stride)
    : tokens_(std::move(tokens)),
      seq_len_(seq_len),
      stride_(stride),
      records_(count_records(*tokens_, seq_len, stride)) {}

std::int64_t Windows::ids_left() const {
  return tokens_->size() - (records_ - 1) * stride_ - seq_len_ - 1;
}

void Windows::read(std::int64_t record, std::int64_t first, std::span<std::int32_t> out) const {
  DEW_CHECK(0 <= record && record < records_, format("record {} of {}", record, records_));
  DEW_CHECK(0 <= first && first + static_cast<std::int64_t>(out.size()) <= seq_len_ + 1,
            format("ids {}+{} of a window of {} + 1", first, out.size(), seq_len_));
  tokens_->read(record * stride_ + first, out);
}

WindowData TokenWindows::load(const LoadOptions& load_options) const {
  if (load_options.batch < 1) {
    fail(ErrorCode::usage, format("global_batch = {}, must be at least 1", load_options.batch));
  }
  if (load_options.prefetch < 0)
    fail(ErrorCode::usage, format("prefetch = {}, must not be negative", load_options.prefetch));
  if (val_batches < 0)
    fail(ErrorCode::usage, format("val_batches = {}, must not be negative", val_batches));
  if (stride < 0) fail(ErrorCode::usage, format("stride = {}, must be at least 1", stride));
  const TokenDirectory directory(path);
  const std::int64_t step = stride == 0 ? seq_len : stride;
  return {.options = *this,
          .load = load_options,
          .meta = directory.meta(),
          .train = Windows(directory.train(), seq_len, step),
          .val = Windows(directory.val(), seq_len, step)};
}

DataIdentity WindowData::identity() const {
  return {.corpus = train.tokens().fingerprint(),
          .records = train.records(),
          .seq_len = train.seq_len(),
          .stride = train.stride(),
          .shuffle = options.shuffle,
          .seed = options.seed};
}

}  // namespace dew
