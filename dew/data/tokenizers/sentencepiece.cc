// .model files through the SentencePiece library.
#include <sentencepiece_processor.h>

#include <limits>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/load.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

constexpr std::string_view kMark = "\xe2\x96\x81";  // U+2581
// The library takes a text as a whole, and needs many times its size.
constexpr std::size_t kMostText = std::size_t{64} << 20;

void require(const sentencepiece::util::Status& status, const std::string& what) {
  if (!status.ok()) fail(ErrorCode::data, format("{}: {}", what, in_quotes(status.message())));
}

class PieceTextEncoder final : public TokenEncoder {
 public:
  PieceTextEncoder(const Processor& processor, const EncodeOptions& options)
      : processor_(processor), options_(options) {}

  void feed(std::string_view text, std::vector<std::int32_t>& ids) override {
    begin(ids);
    if (text.size() > kMostText - text_.size()) {
      fail(ErrorCode::data,
           format("a document of more than {} MiB, which SentencePiece takes as a whole",
                  kMostText >> 20),
           "a tokenizer.json of the same tokenizer has no such limit");
    }
    text_ += text;
    const std::size_t valid = valid_ + valid_utf8_prefix(std::string_view(text_).substr(valid_));
    valid_ = valid;
    if (utf8_front(std::string_view(text_).substr(valid)).kind == Utf8Front::Kind::broken) refuse();
  }

  void finish(std::vector<std::int32_t>& ids) override {
    begin(ids);
    if (valid_ != text_.size()) refuse();
    std::vector<int> found;
    require(processor_.Encode({text_.data(), text_.size()}, &found), "SentencePiece");
    ids.insert(ids.end(), found.begin(), found.end());
    text_.clear();
    valid_ = 0;
    begun_ = false;
  }

 private:
  void begin(std::vector<std::int32_t>& ids) {
    if (!begun_ && options_.frame && processor_.bos_id() >= 0) ids.push_back(processor_.bos_id());
    begun_ = true;
  }
  [[noreturn]] void refuse() const {
    fail(ErrorCode::data, format("byte {} of the text, 0x{:02x}, is not UTF-8", valid_,
                                 static_cast<unsigned char>(text_[valid_])));
  }

  const Processor& processor_;
  EncodeOptions options_;
  std::string text_;
  std::size_t valid_ = 0;
  bool begun_ = false;
};

// How the model joins pieces: a blank at the very front may be one that encoding put there.
struct FrontBlank {
  bool goes = false;    // the first one
  bool all_go = false;  // all in front of the first text
};

class PieceTextDecoder final : public TokenDecoder {
 public:
  PieceTextDecoder(const Processor& processor, const DecodeOptions& options, FrontBlank front)
      : processor_(processor), options_(options), front_(front) {}

  void feed(std::int32_t id, std::string& text) override {
    if (id < 0 || id >= processor_.GetPieceSize()) {
      fail(ErrorCode::data,
           format("id {} is not in the vocabulary of {}", id, processor_.GetPieceSize()));
    }
    if (processor_.IsByte(id)) {
      bytes_ += byte_of(processor_.IdToPiece(id));
      utf8_.feed(std::exchange(bytes_, {}), text_);
      return give(text);
    }
    utf8_.finish(text_);
    give(text);
    if (processor_.IsControl(id)) {
      if (!options_.skip_special) text += processor_.IdToPiece(id);
      return;
    }
    text_ += processor_.IsUnknown(id) ? " \xe2\x81\x87 " : surface(processor_.IdToPiece(id));
    give(text);
  }

  void finish(std::string& text) override {
    utf8_.finish(text_);
    give(text);
    at_front_ = true;
    blank_gone_ = false;
  }

 private:
  static char byte_of(const std::string& piece) {  // <0x41>
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  void give(std::string& text) {
    if (!text_.empty()) at_front_ = false;
    text += text_;
    text_.clear();
  }

  std::string surface(std::string_view piece) {
    if (at_front_ && front_.goes && (front_.all_go || !blank_gone_) && piece.starts_with(kMark)) {
      piece.remove_prefix(kMark.size());
      blank_gone_ = true;
    }
    std::string plain;
    while (!piece.empty()) {
      const std::size_t at = std::min(piece.find(kMark), piece.size());
      plain += piece.substr(0, at);
      piece.remove_prefix(at);
      if (piece.empty()) break;
      plain += ' ';
      piece.remove_prefix(kMark.size());
    }
    return plain;
  }

  const Processor& processor_;
  DecodeOptions options_;
  FrontBlank front_;
  Utf8Stream utf8_;
  std::string bytes_, text_;
  bool at_front_ = true, blank_gone_ = false;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& where) {
    require(processor_.LoadFromSerializedProto({bytes.data(), bytes.size()}),
            where + ": no SentencePiece model");
    if (processor_.GetPieceSize() <= 0)
      fail(ErrorCode::data, where + ": the SentencePiece model has no pieces");
    front_ = front_blank();
  }

  using Tokenizer::decoder;
  using Tokenizer::encoder;
  std::string name() const override { return "tokenizer.model"; }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<std::int32_t> eos_id() const override { return id_or_none(processor_.eos_id()); }
  std::optional<std::int32_t> bos_id() const override { return id_or_none(processor_.bos_id()); }
  std::unique_ptr<TokenEncoder> encoder(const EncodeOptions& options) const override {
    return std::make_unique<PieceTextEncoder>(processor_, options);
  }
  std::unique_ptr<TokenDecoder> decoder(const DecodeOptions& options) const override {
    return std::make_unique<PieceTextDecoder>(processor_, options, front_);
  }

 private:
  static std::optional<std::int32_t> id_or_none(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  // The library has no question for it, so a word is decoded, once and twice.
  FrontBlank front_blank() const {
    FrontBlank front;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      if (piece.size() <= kMark.size() || !piece.starts_with(kMark) ||
          piece.substr(kMark.size()).starts_with(kMark) || processor_.IsControl(id) ||
          processor_.IsUnknown(id))
        continue;
      std::string text;
      require(processor_.Decode(std::vector<int>{id}, &text), "SentencePiece");
      front.goes = !text.starts_with(' ');
      break;
    }
    const int blank = processor_.PieceToId({kMark.data(), kMark.size()});
    if (!front.goes || processor_.IsUnknown(blank)) return front;
    std::string text;
    require(processor_.Decode(std::vector<int>{blank, blank}, &text), "SentencePiece");
    front.all_go = text.empty();
    return front;
  }

  Processor processor_;
  FrontBlank front_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& where) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    fail(ErrorCode::data, format("{}: {} bytes are no SentencePiece model", where, bytes.size()));
  return std::make_unique<SentencePieceTokenizer>(bytes, where);
}

}  // namespace dew
