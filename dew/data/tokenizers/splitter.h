// The first stage of tokenizing: text into pieces that are encoded by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dew/data/tokenizers/pattern.h"

namespace dew {

// What becomes of a match between pieces.
enum class SplitBehavior : std::uint8_t {
  isolated,              // a piece of its own
  removed,               // nothing
  contiguous,            // matches in a row are one piece
  merged_with_previous,  // the end of the piece before it
  merged_with_next,      // the beginning of the piece behind it
};

struct SplitStep {
  std::shared_ptr<const Pattern> pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what lies between matches is what is split at
};

// When something is put before a piece that does not begin with it.
enum class PrefixWhen : std::uint8_t { never, first, always };  // first: only where the text begins

// Blanks become `mark`, and one is put in front.
struct MarkStep {
  std::string mark;
  PrefixWhen prefix = PrefixWhen::always;
};

struct PrefixStep {  // a blank in front of every piece
};

struct ByteCharactersStep {  // each byte becomes its character (byte_characters.h)
};

using PreTokenizeStep = std::variant<SplitStep, MarkStep, PrefixStep, ByteCharactersStep>;
using PreTokenizer = std::vector<PreTokenizeStep>;  // applied one after the other to all pieces

// Some pieces in order, which live as long as the call.
using PieceSink = std::function<void(std::span<const std::string_view> pieces)>;

// Text that comes in parts, cut anywhere between characters, to pieces. One thread; needs its
// pre-tokenizer alive.
class Splitter {
 public:
  explicit Splitter(const PreTokenizer& steps);
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;
  ~Splitter();

  // If not, a text is one piece of any size, whose front may be taken by its length.
  bool splits() const { return first_split_ < steps_.size(); }

  // Begins a text; `first`: nothing is before it; `goes_on`: what is before it belongs to it.
  void begin(bool first, bool goes_on = false);
  // Adds to the text and gives the pieces that do not depend on what follows.
  void feed(std::string_view text, const PieceSink& sink);
  // Ends it and gives the rest.
  void finish(const PieceSink& sink);

  // From here on `mark` is called in front of pieces of the first split, all before being given,
  // with the byte where the next one begins in the text as it is after the steps before. It returns
  // for how many bytes from there on not every piece needs to be marked.
  using Mark = std::function<std::size_t(std::size_t byte)>;
  void trace(Mark mark) { mark_ = std::move(mark); }

  // Without splits: what has come and was not taken.
  std::string_view pending() const { return std::string_view(text_).substr(done_); }
  void take(std::size_t bytes) { done_ += bytes; }

 private:
  static constexpr std::size_t kBatch = 64;  // pieces given together

  void append(std::string_view text);
  void drain(bool complete, const PieceSink& sink);
  void give(std::size_t from, std::size_t to, const PieceSink& sink);
  void flush(const PieceSink& sink);
  // A whole piece through the steps from `step` on.
  void run(std::size_t step, std::string_view piece, bool first, const PieceSink& sink);
  void split(std::size_t step, std::string_view piece, bool first, const PieceSink& sink);
  void forget_done();

  const PreTokenizer& steps_;
  std::size_t first_split_;
  std::vector<std::unique_ptr<Matcher>> matchers_;  // by step
  std::string text_;                                // after the steps before the first split
  std::size_t done_ = 0;                            // bytes of text_ given as pieces
  bool first_ = true;                               // text_ begins where everything begins
  bool fresh_ = true;                               // nothing of the text has come
  std::size_t keep_ = 0;                            // bytes that a pattern looks back at
  std::size_t enough_ = 0;                          // bytes of text_ that are worth another look
  std::size_t gone_ = 0;                            // bytes that were in front of text_
  std::vector<std::string_view> batch_;             // pieces of text_ that are not given yet
  Mark mark_;
  std::size_t quiet_until_ = 0;  // as mark_ has said
};

}  // namespace dew
