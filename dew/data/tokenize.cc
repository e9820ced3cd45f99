#include "dew/data/tokenize.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <thread>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/partial_directory.h"
#include "dew/data/batch_encoder.h"
#include "dew/data/ordered_workers.h"
#include "dew/data/part_joiner.h"
#include "dew/data/text_batches.h"
#include "dew/data/text_inputs.h"
#include "dew/data/tokenizer.h"

namespace dew {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

// ---- the work

// Reads, lets the workers encode, and writes the ids in order.
class Pass {
 public:
  Pass(const Tokenizer& tokenizer, const TokenizeOptions& options, const TextInputs& inputs,
       IdWriter& out, TokenizeResult& result)
      : tokenizer_(tokenizer),
        options_(options),
        inputs_(inputs),
        out_(out),
        result_(result),
        joiner_(tokenizer, {.special_in_text = options.special_in_text}, options.add_bos, out),
        workers_(works(tokenizer, options, out.type())) {}

  void run() {
    if (const auto front = DocumentFrame(tokenizer_, options_.add_bos).front())
      out_.write({&*front, 1});
    TextBatches batches(inputs_, {.batch_bytes = kPiece,
                                  .overlap = PartIds::kOverlap,
                                  .skip_invalid = options_.skip_invalid && checks_text_});
    const std::size_t most = 2 * threads(options_) + 2;
    for (bool more = true; more || workers_.pending() > 0;) {
      while (more && workers_.pending() < most) {
        std::optional<TextBatch> batch = batches.next();
        more = batch.has_value();
        if (!more) break;
        taken_ = batch->taken;
        workers_.submit(std::move(*batch));
        report();  // reading may wait for somebody else: what ends the work is asked here too
      }
      if (workers_.pending() > 0) take();
      report();
    }
    result_.empty_documents += batches.empty_documents();
    result_.skipped += batches.skipped_lines();
  }

  void any_bytes() { checks_text_ = false; }

  static std::size_t threads(const TokenizeOptions& options) {
    if (options.threads > 0) return static_cast<std::size_t>(options.threads);
    return std::max(1U, std::thread::hardware_concurrency());
  }

 private:
  using Workers = OrderedWorkers<TextBatch, EncodedBatch>;

  static std::vector<Workers::Work> works(const Tokenizer& tokenizer,
                                          const TokenizeOptions& options, IdType type) {
    std::vector<Workers::Work> works;
    for (std::size_t i = 0; i < threads(options); ++i) {
      auto encoder = std::make_shared<BatchEncoder>(
          tokenizer, BatchEncoderOptions{.type = type,
                                         .add_bos = options.add_bos,
                                         .special_in_text = options.special_in_text,
                                         .skip_invalid = options.skip_invalid,
                                         .text_field = options.text_field});
      works.emplace_back([encoder](const TextBatch& batch) { return encoder->encode(batch); });
    }
    return works;
  }

  void take() {
    auto [batch, encoded] = workers_.take();
    result_.bytes += encoded.bytes;
    result_.empty_documents += encoded.empty;
    result_.skipped += encoded.skipped;
    *result_.meta.documents += encoded.documents;
    if (batch.kind != TextBatch::Kind::part) {
      out_.write_stored(encoded.stored, encoded.tokens);
    } else {
      if (batch.begins) ++*result_.meta.documents;
      joiner_.add(std::move(batch), std::move(encoded.part));
    }
  }

  void report() {
    if (options_.progress)
      options_.progress(
          {.bytes = taken_, .total_bytes = inputs_.total_bytes, .tokens = out_.count()});
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const TextInputs& inputs_;
  IdWriter& out_;
  TokenizeResult& result_;
  bool checks_text_ = true;
  std::int64_t taken_ = 0;  // bytes of the files
  PartJoiner joiner_;
  Workers workers_;
};

// Copies `bytes` bytes, or the rest, to a new file and returns its digest.
std::uint64_t copy_part(FileReader& from, const Path& to, std::int64_t bytes) {
  FileWriter writer(to, ErrorCode::data);
  Digest digest;
  std::vector<std::byte> piece(kPiece);
  while (bytes > 0) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::int64_t>(bytes, static_cast<std::int64_t>(kPiece)));
    const auto got = from.read(std::span(piece).first(wanted));
    if (got < wanted)
      fail(ErrorCode::data, format("'{}': the ids written before it are gone", to.string()));
    const auto part = std::span<const std::byte>(piece).first(got);
    digest.update(part);
    writer.write(part);
    bytes -= static_cast<std::int64_t>(got);
  }
  writer.finish();
  return digest.value();
}

void split(const Path& stream, const Path& directory, TokenMeta& meta) {
  const auto width = static_cast<std::int64_t>(meta.dtype);
  FileReader reader(stream, ErrorCode::data);
  meta.val_digest = copy_part(reader, directory / "val.bin", meta.val_tokens * width);
  meta.train_digest = copy_part(reader, directory / "train.bin", meta.train_tokens * width);
  remove_quietly(stream);
}

void count_tokens(std::int64_t tokens, double val_fraction, TokenMeta& meta) {
  meta.val_tokens =
      static_cast<std::int64_t>(std::floor(val_fraction * static_cast<double>(tokens)));
  meta.val_tokens = std::min(meta.val_tokens, tokens - 1);  // a fraction next to 1 may round up
  meta.train_tokens = tokens - meta.val_tokens;
  if (meta.val_tokens < 1) {
    fail(ErrorCode::data,
         format("too little text: {} of {} ids is not one validation id", val_fraction, tokens),
         "give more text or a larger validation fraction");
  }
}

void check_options(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  if (options.inputs.empty()) fail(ErrorCode::usage, "no text to tokenize was named");
  if (options.out.empty()) fail(ErrorCode::usage, "no output directory was named");
  if (!(options.val_fraction > 0 && options.val_fraction < 1)) {
    fail(ErrorCode::usage,
         format("the validation fraction is {}, must lie between 0 and 1", options.val_fraction));
  }
  if (options.add_bos && !tokenizer.bos_id()) {
    fail(ErrorCode::usage,
         format("the tokenizer '{}' has no begin token to add", tokenizer.name()));
  }
}

TokenMeta begin_meta(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  TokenMeta meta;
  meta.tokenizer = tokenizer.name();
  meta.vocab_size = tokenizer.vocab_size();
  meta.dtype = id_type_for(meta.vocab_size);
  meta.eos_id = tokenizer.eos_id();
  if (options.add_bos) meta.bos_id = tokenizer.bos_id();
  meta.documents = 0;
  return meta;
}

}  // namespace

TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  check_options(tokenizer, options);
  const TextInputs inputs = list_text_inputs(options.inputs, options.stdin_is_json_lines);
  PartialDirectory directory(options.out, ErrorCode::data, ErrorCode::data);
  const Path stream = directory.path() / "ids";
  IdWriter ids(stream, tokenizer.vocab_size());

  TokenizeResult result;
  result.hidden = inputs.hidden;
  result.meta = begin_meta(tokenizer, options);
  Pass pass(tokenizer, options, inputs, ids, result);
  if (tokenizer.takes_any_bytes()) pass.any_bytes();
  pass.run();
  ids.close();
  if (result.bytes == 0) {
    const std::size_t files = inputs.files.size();
    fail(ErrorCode::data, files == 1
                              ? std::string("there is no text: the one file is empty")
                              : format("there is no text: {} files, all of them empty", files));
  }
  count_tokens(ids.count(), options.val_fraction, result.meta);
  split(stream, directory.path(), result.meta);
  for (const auto& [name, bytes] : options.files)
    write_file_atomic(directory.path() / name, bytes, ErrorCode::data);
  write_token_meta(directory.path(), result.meta);
  directory.commit();
  return result;
}

}  // namespace dew
