#include "dew/data/count_words.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/batch_encoder.h"
#include "dew/data/json_lines.h"
#include "dew/data/ordered_workers.h"
#include "dew/data/text_batches.h"
#include "dew/data/tokenizers/json_parts.h"

namespace dew {
namespace {

struct Counted {
  std::int64_t bytes = 0, documents = 0, skipped = 0;
};

// What one thread does. Its counts are its own until the end.
class Counter {
 public:
  Counter(const PreTokenizer& steps, const CountWordsOptions& options)
      : splitter_(steps), options_(options) {}

  Counted count(const TextBatch& batch) {
    Counted result;
    switch (batch.kind) {
      case TextBatch::Kind::documents:
        count_documents(batch, result);
        break;
      case TextBatch::Kind::lines:
        visit_json_lines(batch, options_.text_field, options_.skip_invalid, result.skipped,
                         [&](std::string_view text, std::int64_t) { add(text, result); });
        break;
      case TextBatch::Kind::part: {
        const std::string_view text = std::string_view(batch.text).substr(0, batch.bytes);
        require_utf8(text, batch.source, batch.line, batch.offset);
        add(text, result);
        if (!batch.begins) --result.documents;
        break;
      }
    }
    return result;
  }

  const WordCounts& words() const { return words_; }

 private:
  void count_documents(const TextBatch& batch, Counted& result) {
    std::size_t begin = 0;
    for (const TextBatch::Document& d : batch.documents) {
      const std::string_view text = std::string_view(batch.text).substr(begin, d.end - begin);
      require_utf8(text, d.source, 1, 0);
      add(text, result);
      begin = d.end;
    }
  }

  void add(std::string_view text, Counted& result) {
    const PieceSink sink = [&](auto words) {
      for (const std::string_view word : words) words_.add(word);
    };
    splitter_.begin(true);
    splitter_.feed(text, sink);
    splitter_.finish(sink);
    result.bytes += static_cast<std::int64_t>(text.size());
    ++result.documents;
  }

  Splitter splitter_;
  const CountWordsOptions& options_;
  WordCounts words_;
};

}  // namespace

CountedWords count_words(const PreTokenizer& steps, const CountWordsOptions& options) {
  const TextInputs inputs = list_text_inputs(options.inputs, options.stdin_is_json_lines);
  const std::size_t threads = options.threads > 0
                                  ? static_cast<std::size_t>(options.threads)
                                  : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::shared_ptr<Counter>> counters;
  using Workers = OrderedWorkers<TextBatch, Counted>;
  std::vector<Workers::Work> works;
  for (std::size_t i = 0; i < threads; ++i) {
    counters.push_back(std::make_shared<Counter>(steps, options));
    works.emplace_back(
        [counter = counters.back()](const TextBatch& batch) { return counter->count(batch); });
  }
  CountedWords result;
  {
    Workers workers(std::move(works));
    TextBatches batches(inputs, {.overlap = 0, .skip_invalid = options.skip_invalid});
    for (bool more = true; more || workers.pending() > 0;) {
      while (more && workers.pending() < 2 * threads + 2) {
        std::optional<TextBatch> batch = batches.next();
        more = batch.has_value();
        if (!more) break;
        const std::int64_t taken = batch->taken;
        workers.submit(std::move(*batch));
        if (options.progress) options.progress(taken, inputs.total_bytes);
      }
      if (workers.pending() == 0) continue;
      const Counted counted = workers.take().second;
      result.bytes += counted.bytes;
      result.documents += counted.documents;
      result.skipped += counted.skipped;
    }
    result.skipped += batches.skipped_lines();
  }
  for (const auto& counter : counters) result.words.add(counter->words());
  return result;
}

PreTokenizer byte_level_words() {
  const Json json = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  PreTokenizer steps = tokenizer_json::read_pre_tokenizer({json, "ByteLevel"});
  steps.pop_back();  // bytes stay bytes
  return steps;
}

}  // namespace dew
