// Parts of long documents, each encoded without the others.
#include <algorithm>

#include "dew/data/tokenizers/file_encoder.h"

namespace dew {
namespace {

EncodeOptions continuing(EncodeOptions options) {
  options.continues = true;
  return options;
}

// Where pieces are cut depends on the place alone at which the search for the next one begins: two
// searches that began apart soon meet at the same place, and agree from there on.
class SplitParts final : public PartEncoder {
 public:
  SplitParts(const FileTokenizer& tokenizer, const EncodeOptions& options)
      : first_(tokenizer, options), later_(tokenizer, continuing(options)) {}

  PartIds encode(const DocumentPart& part) override {
    part_bytes_ = part.bytes;
    result_ = {};
    FileEncoder& encoder = part.begins ? first_ : later_;
    encoder.reset();
    encoder.trace([this](std::size_t byte) { return mark(byte); });
    encoder.feed(part.text, result_.ids);
    if (part.ends) encoder.finish(result_.ids);
    return std::move(result_);
  }

 private:
  // Neighbours meet in the overlaps; of what is between them one mark that is not far is enough.
  std::size_t mark(std::size_t byte) {
    const PartIds::Mark mark{byte, result_.ids.size()};
    if (byte < PartIds::kOverlap) result_.head.push_back(mark);
    if (byte >= part_bytes_) {
      result_.tail.push_back(mark);
    } else {
      result_.last = mark;
    }
    return byte >= PartIds::kOverlap && byte < part_bytes_ ? part_bytes_ - byte : 0;
  }

  FileEncoder first_, later_;
  std::size_t part_bytes_ = 0;
  PartIds result_;
};

// Text without splits that is seen a character at a time falls apart where no token crosses: in
// front of the first blank behind the place where the part begins. Both neighbours find it.
class WordParts final : public PartEncoder {
 public:
  WordParts(const FileTokenizer& tokenizer, const EncodeOptions& options)
      : tokenizer_(tokenizer),
        first_(tokenizer, options),
        later_(tokenizer, continuing(options)),
        normalizer_(tokenizer.parts().normalizer) {}

  PartIds encode(const DocumentPart& part) override {
    PartIds result;
    const std::size_t begin = part.begins ? 0 : word_from(part.text, 0);
    const std::size_t end = part.ends ? part.text.size() : word_from(part.text, part.bytes);
    if (begin > end || end > part.text.size()) return result;
    FileEncoder& encoder = part.begins ? first_ : later_;
    encoder.feed(part.text.substr(begin, end - begin), result.ids);
    encoder.finish(result.ids);
    if (begin < PartIds::kOverlap) result.head = {{begin, 0}};
    if (begin < part.bytes) result.last = {begin, 0};
    result.tail = {{end, result.ids.size()}};
    return result;
  }

 private:
  // The first such place at or behind `from`, which is at a character; beyond the text if there is
  // none.
  std::size_t word_from(std::string_view text, std::size_t from) {
    const std::size_t reach = std::min(text.size(), from + PartIds::kOverlap);
    for (std::size_t at = std::max<std::size_t>(from, 1); at < reach; ++at) {
      if (text[at] == ' ' && text[at - 1] != ' ' && separates(text, at)) return at;
    }
    return text.size() + 1;
  }

  bool separates(std::string_view text, std::size_t at) {
    const std::size_t before = back_code_point(text.substr(0, at)).bytes;
    const std::string left = seen(text.substr(at - before, before));
    const std::string right = seen(text.substr(at, 1));
    return !left.empty() && !right.empty() &&
           tokenizer_.parts().model->separates(left + right, left.size());
  }

  // A character of the middle of a text as the model sees it.
  std::string seen(std::string_view character) {
    std::string normal;
    normalizer_.begin(true);
    normalizer_.feed(character, normal);
    normalizer_.finish(normal);
    Splitter splitter(tokenizer_.parts().pre_tokenizer);
    splitter.begin(false, true);
    splitter.feed(normal, [](auto) {});
    return std::string(splitter.pending());
  }

  const FileTokenizer& tokenizer_;
  FileEncoder first_, later_;
  Normalizer normalizer_;
};

// What is behind a token begins as a text does, which nobody knows who begins in the middle.
bool finds_tokens(const FileTokenizer& tokenizer, const EncodeOptions& options) {
  return std::ranges::any_of(tokenizer.parts().added, [&](const AddedToken& token) {
    return options.special_in_text || !token.special;
  });
}

}  // namespace

std::unique_ptr<PartEncoder> make_part_encoder(const FileTokenizer& tokenizer,
                                               const EncodeOptions& options) {
  const PreTokenizer& steps = tokenizer.parts().pre_tokenizer;
  if (options.frame) return nullptr;
  if (!steps.empty()) {
    const auto* split = std::get_if<SplitStep>(&steps[0]);
    if (split != nullptr && split->pattern->lookbehind() == 0 &&
        !split->pattern->may_match_nothing())
      return std::make_unique<SplitParts>(tokenizer, options);
  }
  if (!Splitter(steps).splits() && Normalizer(tokenizer.parts().normalizer).cuts_anywhere() &&
      tokenizer.parts().model->parts_stand_alone() && !finds_tokens(tokenizer, options))
    return std::make_unique<WordParts>(tokenizer, options);
  return nullptr;
}

}  // namespace dew
