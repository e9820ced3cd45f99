// What happens to characters before text is cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dew/data/tokenizers/char_map.h"
#include "dew/data/tokenizers/grown_text.h"
#include "dew/data/tokenizers/pattern.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {

struct NmtStep {};  // control characters go, several kinds of space become blanks
struct LowercaseStep {};
struct StripAccentsStep {};  // marks go
struct StripStep {           // white space at the ends goes
  bool left = true, right = true;
};
struct PrependStep {  // in front of a text that is not empty
  std::string text;
};
struct ReplaceStep {
  std::string literal;                     // what is replaced; empty: matches of `pattern`
  std::shared_ptr<const Pattern> pattern;  // of a regular expression
  std::string by;
};
struct CharMapStep {
  std::shared_ptr<const CharMap> map;
};

using NormalizeStep = std::variant<NormalForm, NmtStep, LowercaseStep, StripAccentsStep, StripStep,
                                   PrependStep, ReplaceStep, CharMapStep>;
using NormalizerSteps = std::vector<NormalizeStep>;

// Text that comes in parts through all steps. One thread; needs its steps alive. Parts of text are
// held back until what follows cannot change them; steps that look at everything (strip, replacing
// several characters) hold the whole.
class Normalizer {
 public:
  explicit Normalizer(const NormalizerSteps& steps);

  bool changes_nothing() const { return steps_.empty(); }
  // Every character is seen by itself.
  bool cuts_anywhere() const { return cut_ == Cut::anywhere; }

  // `goes_on`: what is before the text belongs to it.
  void begin(bool goes_on = false);
  // REQUIRES (both): valid UTF-8, cut between characters. Throw ErrorCode::data where the steps
  // make far more of the text than it was (GrownText).
  void feed(std::string_view text, std::string& out);
  void finish(std::string& out);

  // Whether a step left nothing of the front; then what is left does not begin where everything
  // begins.
  bool front_is_gone() const { return front_is_gone_; }

 private:
  enum class Cut : std::uint8_t {
    anywhere,       // steps see one character at a time
    normal_parts,   // begins_normal_part()
    between_ascii,  // between two printable characters of ASCII
    nowhere,
  };
  static Cut cut_of(const NormalizeStep& step);
  std::size_t certain(std::string_view text) const;
  void run(std::string_view text, std::string& out);
  void apply(std::size_t index, std::string_view text, std::string& out);

  const NormalizerSteps& steps_;
  Cut cut_ = Cut::anywhere;
  std::string held_;
  std::vector<bool> begun_;  // by step: something came
  bool front_is_gone_ = false;
  std::size_t most_ = 0;  // bytes that a step may make of the text that runs
};

// Appends the text with what the step replaces.
void append_replaced(std::string_view text, const ReplaceStep& step, GrownText& out);

// The whole of a text at once.
std::string normalized(const NormalizerSteps& steps, std::string_view valid);

}  // namespace dew
