#include "dew/data/tokenizers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <new>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/ascii_words.h"

namespace dew {
namespace {

constexpr std::size_t kFirstStack = 32 << 10, kMostStack = 4 << 20;

template <auto Free>
struct FreeBy {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, FreeBy<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeBy<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeBy<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeBy<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeBy<pcre2_jit_stack_free>>;

template <typename Pointer>
Pointer made(typename Pointer::pointer raw) {
  if (raw == nullptr) throw std::bad_alloc();
  return Pointer(raw);
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string reason(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Code {
  CodePointer code;
  std::string shown;  // as the file has it, for messages
  const AsciiWords* ascii = nullptr;
};

namespace {

CodePointer compile(std::string_view spelling, std::uint32_t options, const std::string& shown,
                    const std::string& where) {
  const auto context = made<CompileContext>(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  int error = 0;
  PCRE2_SIZE at = 0;
  CodePointer code(pcre2_compile(bytes_of(spelling), spelling.size(),
                                 options | PCRE2_UTF | PCRE2_NO_UTF_CHECK, &error, &at,
                                 context.get()));
  if (!code) {
    fail(ErrorCode::data,
         format("{}: the pattern {} is not understood: {}", where, shown, reason(error)));
  }
  const int compiled = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  if (compiled != 0) {
    fail(ErrorCode::data,
         format("{}: the pattern {} cannot be compiled: {}", where, shown, reason(compiled)));
  }
  return code;
}

}  // namespace

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern::Pattern(std::string_view pattern, PatternSyntax syntax, const std::string& where)
    : code_(std::make_unique<Code>()) {
  if (pattern.size() > kMostBytes) {
    fail(ErrorCode::data,
         format("{}: a pattern of {} bytes, the most is {}", where, pattern.size(), kMostBytes));
  }
  code_->shown = in_quotes(pattern);
  const std::uint32_t lines =
      syntax == PatternSyntax::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
  code_->code = compile(pcre2_spelling(pattern, syntax, where),
                        lines | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, code_->shown, where);
  code_->ascii = AsciiWords::of(pattern);
}

Pattern Pattern::literal(std::string_view text) {
  auto code = std::make_unique<Code>();
  code->shown = in_quotes(text);
  code->code = compile(text, PCRE2_LITERAL, code->shown, "tokenizer");
  return Pattern(std::move(code));
}

std::size_t Pattern::lookbehind() const {
  std::uint32_t characters = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &characters);
  return characters;
}

bool Pattern::may_match_nothing() const {
  std::uint32_t may = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

struct Matcher::State {
  const Pattern::Code* pattern;
  MatchData data;
  MatchContext context;
  JitStack stack;
};

Matcher::Matcher(const Pattern& pattern) : state_(std::make_unique<State>()) {
  state_->pattern = pattern.code_.get();
  state_->data = made<MatchData>(pcre2_match_data_create(1, nullptr));
  state_->context = made<MatchContext>(pcre2_match_context_create(nullptr));
  state_->stack = made<JitStack>(pcre2_jit_stack_create(kFirstStack, kMostStack, nullptr));
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  pcre2_set_match_limit(state_->context.get(), kMostSteps);
}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

PatternMatch Matcher::find(std::string_view text, std::size_t from, bool complete) {
  if (state_->pattern->ascii != nullptr && from < text.size()) {
    const std::size_t end = state_->pattern->ascii->match(text, from);
    if (end > 0) return {PatternMatch::Kind::found, from, end};
  }
  return search(text, from, complete);
}

PatternMatch Matcher::search(std::string_view text, std::size_t from, bool complete) {
  const int count =
      pcre2_jit_match(state_->pattern->code.get(), bytes_of(text), text.size(), from,
                      complete ? 0 : PCRE2_PARTIAL_HARD, state_->data.get(), state_->context.get());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data.get());
  // 0: there was no room for groups, which nobody asks for.
  if (count >= 0) return {PatternMatch::Kind::found, range[0], range[1]};
  if (count == PCRE2_ERROR_NOMATCH) return {PatternMatch::Kind::none, text.size(), text.size()};
  if (count == PCRE2_ERROR_PARTIAL) return {PatternMatch::Kind::unfinished, range[0], text.size()};
  fail(ErrorCode::data,
       format("the pattern {} takes too much work on this text: {}", state_->pattern->shown,
              reason(count)),
       "a pattern that does not repeat repeats takes less");
}

}  // namespace dew
