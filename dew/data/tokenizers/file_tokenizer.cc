#include "dew/data/tokenizers/file_tokenizer.h"

#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/byte_characters.h"
#include "dew/data/tokenizers/file_encoder.h"

namespace dew {
FileTokenizer::FileTokenizer(std::string name, TokenizerParts parts)
    : name_(std::move(name)), parts_(std::move(parts)) {
  spell_bytes();
  special_.resize(static_cast<std::size_t>(parts_.vocabulary.end()));
  for (const AddedToken& token : parts_.added) {
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
    if (token.normalized) {
      normal_finder_.add(normalized(parts_.normalizer, token.text), &token);
    } else {
      raw_finder_.add(token.text, &token);
    }
  }
}

void FileTokenizer::spell_bytes() {
  byte_level_ =
      parts_.decoder.size() == 1 && std::holds_alternative<ByteLevelDecode>(parts_.decoder[0]);
  for (TokenId id = 0; byte_level_ && id < parts_.vocabulary.end(); ++id) {
    if (const auto text = parts_.vocabulary.text(id)) {
      const auto bytes = bytes_of_characters(*text);
      spelled_ += bytes ? std::string_view(*bytes) : *text;
    }
    spelled_ends_.push_back(spelled_.size());
  }
}

std::string_view FileTokenizer::spelled(TokenId id) const {
  const auto i = static_cast<std::size_t>(id);
  const std::size_t begin = i == 0 ? 0 : spelled_ends_[i - 1];
  return std::string_view(spelled_).substr(begin, spelled_ends_[i] - begin);
}

class FileDecoder final : public TokenDecoder {
 public:
  FileDecoder(const FileTokenizer& tokenizer, const DecodeOptions& options)
      : tokenizer_(tokenizer), options_(options), chain_(tokenizer.parts_.decoder) {}

  void feed(std::int32_t id, std::string& text) override {
    const auto token = tokenizer_.parts_.vocabulary.text(id);
    if (!token) {
      fail(ErrorCode::data,
           format("id {} is not in the vocabulary of {}", id, tokenizer_.parts_.vocabulary.end()));
    }
    if (options_.skip_special && tokenizer_.special_[static_cast<std::size_t>(id)]) return;
    if (tokenizer_.parts_.byte_tokens) return utf8_.feed(*token, text);
    if (tokenizer_.byte_level_) return utf8_.feed(tokenizer_.spelled(id), text);
    if (!first_) text += tokenizer_.parts_.joiner;
    first_ = false;
    chain_.token(*token, text);
  }

  void finish(std::string& text) override {
    utf8_.finish(text);
    chain_.finish(text);
    first_ = true;
  }

 private:
  const FileTokenizer& tokenizer_;
  DecodeOptions options_;
  TextDecoder chain_;
  Utf8Stream utf8_;
  bool first_ = true;
};

std::unique_ptr<TokenEncoder> FileTokenizer::encoder(const EncodeOptions& options) const {
  return std::make_unique<FileEncoder>(*this, options);
}

std::unique_ptr<PartEncoder> FileTokenizer::part_encoder(const EncodeOptions& options) const {
  return make_part_encoder(*this, options);
}

std::unique_ptr<TokenDecoder> FileTokenizer::decoder(const DecodeOptions& options) const {
  return std::make_unique<FileDecoder>(*this, options);
}

}  // namespace dew
