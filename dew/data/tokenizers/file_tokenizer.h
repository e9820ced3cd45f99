// A tokenizer as a file describes it: added tokens, normalizer, pre-tokenizer, model, frame,
// decoder. The readers of files (load.h) fill TokenizerParts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/tokenizer.h"
#include "dew/data/tokenizers/added_tokens.h"
#include "dew/data/tokenizers/normalizer.h"
#include "dew/data/tokenizers/splitter.h"
#include "dew/data/tokenizers/text_decoder.h"
#include "dew/data/tokenizers/token_model.h"
#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

struct TokenizerParts {
  Vocabulary vocabulary;  // all tokens as the file spells them, added ones too
  std::vector<AddedToken> added;
  NormalizerSteps normalizer;
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const TokenModel> model;
  std::vector<TokenId> before, behind;  // the frame
  DecodeSteps decoder;
  // Tokens are bytes (a rank file): decoding makes text of them and nothing else.
  bool byte_tokens = false;
  // Without a decoder, what is put between tokens.
  std::string joiner;
  std::optional<TokenId> bos, eos;
};

class FileTokenizer final : public Tokenizer {
 public:
  // `name` as in meta.json.
  FileTokenizer(std::string name, TokenizerParts parts);
  FileTokenizer(const FileTokenizer&) = delete;
  FileTokenizer& operator=(const FileTokenizer&) = delete;

  using Tokenizer::decoder;
  using Tokenizer::encoder;
  std::string name() const override { return name_; }
  // One more than the highest id.
  std::int64_t vocab_size() const override { return parts_.vocabulary.end(); }
  std::optional<std::int32_t> eos_id() const override { return parts_.eos; }
  std::optional<std::int32_t> bos_id() const override { return parts_.bos; }
  // Feeding text that is not UTF-8 is ErrorCode::data with the byte.
  std::unique_ptr<TokenEncoder> encoder(const EncodeOptions& options) const override;
  std::unique_ptr<TokenDecoder> decoder(const DecodeOptions& options) const override;

  std::unique_ptr<PartEncoder> part_encoder(const EncodeOptions& options) const override;

  const TokenizerParts& parts() const { return parts_; }
  // Of tokens that are looked for before and behind the normalizer.
  const AddedTokenFinder& raw_finder() const { return raw_finder_; }
  const AddedTokenFinder& normal_finder() const { return normal_finder_; }

 private:
  friend class FileDecoder;
  void spell_bytes();
  std::string_view spelled(TokenId id) const;

  std::string name_;
  TokenizerParts parts_;
  AddedTokenFinder raw_finder_, normal_finder_;
  // Where tokens are spelled in characters of bytes and decoding is nothing but that: their bytes.
  bool byte_level_ = false;
  std::string spelled_;
  std::vector<std::size_t> spelled_ends_;  // by id
  std::vector<bool> special_;              // by id
};

}  // namespace dew
