#include "dew/data/text_source.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd", kGzipMagic = "\x1f\x8b";

}  // namespace

// One step of a decompressor.
class TextSource::Decompressor {
 public:
  struct Step {
    std::size_t taken = 0, given = 0;
    bool at_end = false;  // a part of the file is complete
  };
  virtual ~Decompressor() = default;
  virtual Step step(std::string_view in, std::span<char> out) = 0;

  bool inside = true;  // of a part that is not complete
};

namespace {

class Zstd final : public TextSource::Decompressor {
 public:
  explicit Zstd(const std::string& name) : name_(name), context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
  }

  Step step(std::string_view in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
    if (ZSTD_isError(left) != 0)
      fail(ErrorCode::data, format("{} is damaged: {}", name_, ZSTD_getErrorName(left)));
    return {from.pos, to.pos, left == 0};
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  const std::string& name_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
};

class Gzip final : public TextSource::Decompressor {
 public:
  explicit Gzip(const std::string& name) : name_(name) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&stream_); }

  Step step(std::string_view in, std::span<char> out) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1 << 30));
    const uInt room = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      fail(ErrorCode::data, format("{} is damaged: {}", name_,
                                   stream_.msg != nullptr ? stream_.msg : zError(status)));
    }
    if (status == Z_STREAM_END) inflateReset(&stream_);
    return {in.size() - stream_.avail_in, room - stream_.avail_out, status == Z_STREAM_END};
  }

 private:
  const std::string& name_;
  z_stream stream_{};
};

}  // namespace

std::string source_name(const Path& path) {
  return path == "-" ? "standard input" : format("'{}'", path.string());
}

TextSource::TextSource(const Path& path)
    : name_(source_name(path)),
      reader_(path == "-" ? Path("/dev/stdin") : path, ErrorCode::data),
      buffer_(kBuffer, '\0') {
  buffer_.resize(reader_.read(std::as_writable_bytes(std::span(buffer_))));
  const std::string_view front(buffer_);
  const std::string extension = path.extension().string();
  if (front.starts_with(kZstdMagic)) {
    decompressor_ = std::make_unique<Zstd>(name_);
  } else if (front.starts_with(kGzipMagic)) {
    decompressor_ = std::make_unique<Gzip>(name_);
  } else if ((extension == ".zst" || extension == ".gz") && !front.empty()) {
    fail(ErrorCode::data,
         format("{} is not what its name says: it does not begin as {} does", name_, extension));
  }
}

TextSource::~TextSource() = default;

std::int64_t TextSource::bytes_taken() const { return taken_; }

void TextSource::refill() {
  buffer_.resize(kBuffer);
  buffer_.resize(reader_.read(std::as_writable_bytes(std::span(buffer_))));
  begin_ = 0;
}

std::size_t TextSource::read_plain(std::span<char> out) {
  std::size_t done = std::min(out.size(), buffer_.size() - begin_);
  if (done > 0) std::memcpy(out.data(), buffer_.data() + begin_, done);
  begin_ += done;
  if (done < out.size()) done += reader_.read(std::as_writable_bytes(out.subspan(done)));
  taken_ += static_cast<std::int64_t>(done);
  return done;
}

std::size_t TextSource::read(std::span<char> out) {
  if (decompressor_ == nullptr) return read_plain(out);
  std::size_t done = 0;
  while (done < out.size()) {
    if (begin_ == buffer_.size()) refill();
    const bool file_ends = buffer_.empty();
    if (file_ends && !decompressor_->inside) break;
    const auto step =
        decompressor_->step(std::string_view(buffer_).substr(begin_), out.subspan(done));
    begin_ += step.taken;
    taken_ += static_cast<std::int64_t>(step.taken);
    done += step.given;
    decompressor_->inside = !step.at_end;
    if (file_ends && step.given == 0)
      fail(ErrorCode::data, format("{} is cut off in the middle of its compressed data", name_));
  }
  return done;
}

}  // namespace dew
