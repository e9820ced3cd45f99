// A model with a memory of what it has read: the state of generation on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/checkpoint/reader.h"
#include "dew/generate/programs.h"
#include "dew/runtime/backend.h"

namespace dew {

using Ids = std::span<const std::int32_t>;

class CachedTransformer {
 public:
  // Parameters are zeros until loaded. `backend` must outlive this. REQUIRES: rows, capacity and
  // chunk are 1 or more. Throws ErrorCode::usage if the model has no positions for so many tokens.
  CachedTransformer(const models::CausalTransformer& model, const CacheShape& shape, DType compute,
                    Backend& backend);

  // A source of parameters: the f32 values of one layer of one (`slot`; 0 for a parameter of no
  // stack).
  using ReadLayer = std::function<void(const ParamSpec&, std::int64_t slot, std::span<float> out)>;
  void load(const ReadLayer& read);
  // A missing tensor, or one of another shape or type, is an error that names it.
  void load(const CheckpointReader& reader);

  // Forgets all that was read.
  void reset();

  // Reads on: for each row the tokens that follow what it has, perhaps none. REQUIRES: ids are in
  // the vocabulary and every row has room for its own. Between the calls of long texts
  // `should_stop` is asked; if it says so this returns false, and the cache must be reset.
  bool read(std::span<const Ids> rows, const std::function<bool()>& should_stop = {});

  // f32[vocab_size] behind the last token that the row has read. Valid until the next read.
  std::span<const float> logits(std::int64_t row) const;

  const CacheShape& shape() const { return shape_; }
  std::int64_t length(std::int64_t row) const { return lengths_[static_cast<std::size_t>(row)]; }
  std::int64_t room(std::int64_t row) const { return shape_.capacity - length(row); }
  const models::CausalTransformer& model() const { return model_; }
  const Executable& executable() const { return *executable_; }

 private:
  // Registers that a program reads.
  struct Call {
    int list = -1;
    std::int64_t tokens = 0;
    std::span<std::int32_t> ids, positions, segments, columns, last;
  };

  template <class T>
  std::span<T> values(const std::string& reg) const;
  Call find_call(const char* program, std::int64_t tokens) const;
  // Puts tokens [begin, begin + call.tokens) of a row in the call, pads behind its end.
  void place(const Call& call, std::int64_t row, Ids ids, std::int64_t begin);
  void keep_logits(std::int64_t row);

  models::CausalTransformer model_;
  CacheShape shape_;
  DType compute_;
  std::unique_ptr<Executable> executable_;
  Call decode_, prefill_;
  std::vector<std::int64_t> lengths_;   // tokens read, by row
  std::span<const float> last_logits_;  // of the last call, in its register
  std::vector<float> logits_;           // [rows, vocab_size]
};

}  // namespace dew
