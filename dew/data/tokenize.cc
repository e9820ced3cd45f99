#include "dew/data/tokenize.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/tokenizer.h"

namespace dew {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

// ---- what to read

struct Inputs {
  std::vector<Path> files;
  std::int64_t total_bytes = 0, hidden = 0;
};

// Text in a container would otherwise become training data as the bytes of the container.
void refuse_unsupported(const Path& file) {
  for (const std::string_view extension : {".jsonl", ".gz", ".zst", ".xz", ".bz2", ".zip"}) {
    if (file.extension() == extension) {
      fail(ErrorCode::usage,
           format("'{}': {} input is not supported yet", file.string(), extension),
           "give plain text files");
    }
  }
}

class InputLister {
 public:
  Inputs list(const std::vector<Path>& paths) {
    for (const Path& path : paths) add(path);
    return std::move(inputs_);
  }

 private:
  void add(const Path& path) {
    switch (file_kind(path, ErrorCode::data)) {
      case FileKind::missing:
        fail(ErrorCode::data, format("there is no '{}'", path.string()));
      case FileKind::directory:
        return add_directory(path);
      case FileKind::regular:
        inputs_.total_bytes += file_size(path, ErrorCode::data);
        break;
      case FileKind::other:
        break;
    }
    refuse_unsupported(path);
    inputs_.files.push_back(path);
  }

  void add_directory(const Path& path) {
    const Path real = std::filesystem::canonical(path);
    if (!above_.insert(real).second) {
      fail(ErrorCode::data, format("'{}' leads back to a directory above it", path.string()));
    }
    for (const std::string& entry : list_directory(path, ErrorCode::data)) {
      if (entry.starts_with('.')) {
        ++inputs_.hidden;
      } else {
        add(path / entry);
      }
    }
    above_.erase(real);
  }

  Inputs inputs_;
  std::set<Path> above_;  // directories being listed
};

// ---- where to write

// A new directory beside `out`, gone again unless commit() is reached.
class PartialDirectory {
 public:
  explicit PartialDirectory(const Path& out) : out_(absolute_name(out)), path_(out_) {
    require_free();
    create_directories(out_.parent_path(), ErrorCode::data);
    path_ += format(".partial-{}", ::getpid());
    if (!create_directory(path_, ErrorCode::data)) {
      fail(ErrorCode::data, format("'{}' is left over from another run", path_.string()),
           "remove it");
    }
  }
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory() {
    if (!committed_) remove_quietly(path_);
  }

  const Path& path() const { return path_; }

  void commit() {
    sync_directory(path_, ErrorCode::data);
    rename_file(path_, out_, ErrorCode::data);
    committed_ = true;
    sync_directory(out_.parent_path(), ErrorCode::data);
  }

 private:
  // With a file name at its end, so that something can be appended to it: not "a/", not "a/.".
  static Path absolute_name(const Path& out) {
    const Path path = std::filesystem::absolute(out).lexically_normal();
    return path.has_filename() ? path : path.parent_path();
  }

  void require_free() const {
    const FileKind kind = file_kind(out_, ErrorCode::data);
    if (kind == FileKind::missing) return;
    if (kind != FileKind::directory) {
      fail(ErrorCode::usage,
           format("the output '{}' exists and is not a directory", out_.string()));
    }
    if (!list_directory(out_, ErrorCode::data).empty()) {
      fail(ErrorCode::usage, format("the output '{}' exists and is not empty", out_.string()),
           "remove it or choose another name");
    }
  }

  Path out_, path_;
  bool committed_ = false;
};

template <typename T>
void write_as(std::span<const std::int32_t> ids, std::vector<T>& narrow, FileWriter& writer) {
  narrow.resize(ids.size());
  std::transform(ids.begin(), ids.end(), narrow.begin(),
                 [](std::int32_t id) { return static_cast<T>(id); });
  writer.write(std::as_bytes(std::span(narrow)));
}

// The stream of all ids, before it is split.
class IdStream {
 public:
  IdStream(const Path& path, std::int64_t vocab_size)
      : vocab_size_(vocab_size), type_(id_type_for(vocab_size)), writer_(path, ErrorCode::data) {}

  void write(std::span<const std::int32_t> ids) {
    // As unsigned numbers, negative ids are too large as well.
    std::uint32_t largest = 0;
    for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
    DEW_CHECK(largest < vocab_size_ || ids.empty(), format("the tokenizer made id {}", largest));
    switch (type_) {
      case IdType::uint8:
        write_as(ids, bytes_, writer_);
        break;
      case IdType::uint16:
        write_as(ids, words_, writer_);
        break;
      case IdType::uint32:
        writer_.write(std::as_bytes(ids));
        break;
    }
    count_ += static_cast<std::int64_t>(ids.size());
  }
  void close() { writer_.close(); }
  std::int64_t count() const { return count_; }
  IdType type() const { return type_; }

 private:
  std::int64_t vocab_size_;
  IdType type_;
  FileWriter writer_;
  std::int64_t count_ = 0;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint16_t> words_;
};

// ---- the work

// Reads the documents and writes their ids, the end token after each.
class Pass {
 public:
  Pass(const Tokenizer& tokenizer, const TokenizeOptions& options, std::int64_t total_bytes,
       IdStream& out, TokenizeResult& result)
      : tokenizer_(tokenizer),
        options_(options),
        out_(out),
        result_(result),
        encoder_(tokenizer.encoder()) {
    progress_.total_bytes = total_bytes;
    text_.resize(kPiece);
  }

  void document(const Path& file) {
    FileReader reader(file, ErrorCode::data);
    std::size_t n = reader.read(std::as_writable_bytes(std::span(text_)));
    if (n == 0) {
      ++result_.empty_documents;
      return;
    }
    ++*result_.meta.documents;
    while (n > 0) {
      feed(file, std::string_view(text_.data(), n));
      n = reader.read(std::as_writable_bytes(std::span(text_)));
    }
    ids_.clear();
    encoder_->finish(ids_);
    if (const auto eos = tokenizer_.eos_id()) ids_.push_back(*eos);
    out_.write(ids_);
  }

  std::int64_t bytes() const { return progress_.bytes; }

 private:
  void feed(const Path& file, std::string_view text) {
    ids_.clear();
    try {
      encoder_->feed(text, ids_);
    } catch (const Error& error) {
      fail(error.code(), format("'{}': {}", file.string(), error.what()), error.hint());
    }
    out_.write(ids_);
    progress_.bytes += static_cast<std::int64_t>(text.size());
    progress_.tokens = out_.count();
    if (options_.progress) options_.progress(progress_);
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  IdStream& out_;
  TokenizeResult& result_;
  std::unique_ptr<TokenEncoder> encoder_;
  TokenizeProgress progress_;
  std::vector<char> text_;
  std::vector<std::int32_t> ids_;
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

void check_options(const TokenizeOptions& options) {
  if (options.inputs.empty()) fail(ErrorCode::usage, "no text to tokenize was named");
  if (options.out.empty()) fail(ErrorCode::usage, "no output directory was named");
  if (!(options.val_fraction > 0 && options.val_fraction < 1)) {
    fail(ErrorCode::usage,
         format("the validation fraction is {}, must lie between 0 and 1", options.val_fraction));
  }
}

}  // namespace

TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  check_options(options);
  const Inputs inputs = InputLister().list(options.inputs);
  PartialDirectory directory(options.out);
  const Path stream = directory.path() / "ids";
  IdStream ids(stream, tokenizer.vocab_size());

  TokenizeResult result;
  result.hidden = inputs.hidden;
  result.meta.tokenizer = tokenizer.name();
  result.meta.vocab_size = tokenizer.vocab_size();
  result.meta.dtype = ids.type();
  result.meta.eos_id = tokenizer.eos_id();
  result.meta.documents = 0;

  Pass pass(tokenizer, options, inputs.total_bytes, ids, result);
  for (const Path& file : inputs.files) pass.document(file);
  ids.close();
  result.bytes = pass.bytes();
  if (result.bytes == 0) {
    fail(ErrorCode::data,
         format("there is no text: {} files, all of them empty", inputs.files.size()));
  }
  count_tokens(ids.count(), options.val_fraction, result.meta);
  split(stream, directory.path(), result.meta);
  write_token_meta(directory.path(), result.meta);
  directory.commit();
  return result;
}

}  // namespace dew
