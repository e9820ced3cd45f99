#include "dew/data/tokenizers/json_parts.h"

#include <algorithm>
#include <limits>

#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew::tokenizer_json {
namespace {

// GPT-2's, which ByteLevel means.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::shared_ptr<const Pattern> pattern(std::string_view text, const std::string& where) {
  return std::make_shared<Pattern>(text, PatternSyntax::oniguruma, where);
}

void require_one_pattern(const Part& part) {
  part.only({"String", "Regex"});
  if (part.has("String") && part.has("Regex"))
    part.refuse("'String' and 'Regex' exclude each other");
}

// {"String": text} or {"Regex": text}.
std::shared_ptr<const Pattern> read_pattern(const Part& part) {
  require_one_pattern(part);
  if (part.has("Regex")) return pattern(part.object().text("Regex"), part.where);
  const std::string text = part.object().text("String");
  if (text.empty()) part.refuse("an empty pattern");
  return std::make_shared<Pattern>(Pattern::literal(text));
}

ReplaceStep read_replace(const Part& part) {
  part.only({"pattern", "content"});
  ReplaceStep step;
  const Part from = part.at("pattern");
  require_one_pattern(from);
  if (from.has("String")) {
    step.literal = from.object().text("String");
    if (step.literal.empty()) from.refuse("an empty pattern");
  } else {
    step.pattern = read_pattern(from);
  }
  step.by = part.object().text("content");
  return step;
}

std::string read_character(const Part& part, const std::string& key) {
  std::string text = part.object().text(key);
  if (text.empty() || front_code_point(text).bytes != text.size())
    part.refuse(format("'{}' must be one character", key));
  return text;
}

SplitBehavior read_behavior(const Part& part) {
  const std::string name = part.object().text("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  part.unsupported(name,
                   {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"});
}

// Files of early versions say add_prefix_space alone: true is what they mean without a scheme,
// false is refused by the reference too.
PrefixWhen read_prefix(const Part& part) {
  const JsonObject object = part.object();
  const std::string scheme =
      object.has("prepend_scheme") ? object.text("prepend_scheme") : "always";
  if (scheme != "never" && !part.flag_or_null("add_prefix_space", true)) {
    part.refuse(
        format("'add_prefix_space' is false, but 'prepend_scheme' is {}", in_quotes(scheme)));
  }
  if (scheme == "always") return PrefixWhen::always;
  if (scheme == "first") return PrefixWhen::first;
  if (scheme == "never") return PrefixWhen::never;
  part.unsupported(scheme, {"always", "first", "never"});
}

void add_metaspace(const Part& part, PreTokenizer& steps) {
  part.only({"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string mark = read_character(part, "replacement");
  const PrefixWhen prefix = read_prefix(part);
  // For the reference a piece is the first one if it comes from the text's first character, which
  // then may be several pieces.
  const auto splits = [](const PreTokenizeStep& step) {
    return std::holds_alternative<SplitStep>(step);
  };
  if (prefix == PrefixWhen::first && !std::ranges::all_of(steps, splits))
    part.refuse("'prepend_scheme' is 'first' behind a step that changes text");
  steps.emplace_back(MarkStep{.mark = mark, .prefix = prefix});
  if (part.flag_or_null("split", true)) {
    steps.emplace_back(SplitStep{std::make_shared<Pattern>(Pattern::literal(mark)),
                                 SplitBehavior::merged_with_next});
  }
}

constexpr int kMostByteLevels = 4;

struct ByteLevelFlags {
  bool prefix, regex;
};

// In pre-tokenizers, decoders and post-processors; in the last two they mean nothing.
ByteLevelFlags read_byte_level(const Part& part) {
  part.only({"add_prefix_space", "trim_offsets", "use_regex"});
  (void)part.flag("trim_offsets");
  return {part.flag("add_prefix_space"), part.flag_if_there("use_regex", true)};
}

void add_byte_level(const Part& part, PreTokenizer& steps) {
  const ByteLevelFlags flags = read_byte_level(part);
  if (flags.prefix) steps.emplace_back(PrefixStep{});
  if (flags.regex) steps.emplace_back(SplitStep{pattern(kByteLevelPattern, part.where)});
  steps.emplace_back(ByteCharactersStep{});
  const auto doubles = std::ranges::count_if(
      steps, [](const auto& s) { return std::holds_alternative<ByteCharactersStep>(s); });
  if (doubles > kMostByteLevels)
    part.refuse(
        format("there are more than {} of them, each of which doubles text", kMostByteLevels));
}

void add_pre_tokenizer(const Part& part, PreTokenizer& steps) {
  const std::string type = part.type();
  const auto add = [&](std::string_view text, SplitBehavior behavior, bool invert = false) {
    steps.emplace_back(SplitStep{pattern(text, part.where), behavior, invert});
  };
  if (type == "Sequence") {
    part.only({"pretokenizers"});
    const Part all = part.at("pretokenizers");
    for (std::size_t i = 0; i < all.size(); ++i) add_pre_tokenizer(all.element(i), steps);
  } else if (type == "ByteLevel") {
    add_byte_level(part, steps);
  } else if (type == "Split") {
    part.only({"pattern", "behavior", "invert"});
    steps.emplace_back(
        SplitStep{read_pattern(part.at("pattern")), read_behavior(part), part.flag("invert")});
  } else if (type == "Metaspace") {
    add_metaspace(part, steps);
  } else if (type == "Digits") {
    part.only({"individual_digits"});
    add(R"(\p{N})",
        part.flag("individual_digits") ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Whitespace") {
    part.only({});
    add(R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)", SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    part.only({});
    add(R"(\s)", SplitBehavior::removed);
  } else if (type == "Punctuation") {
    part.only({"behavior"});
    add(R"([\p{P}$+<=>^`|~])",
        part.object().has("behavior") ? read_behavior(part) : SplitBehavior::isolated);
  } else {
    part.unsupported(type, {"ByteLevel", "Split", "Metaspace", "Digits", "Whitespace",
                            "WhitespaceSplit", "Punctuation", "Sequence"});
  }
}

void add_normalizer(const Part& part, NormalizerSteps& steps) {
  const std::string type = part.type();
  const auto add_form = [&](NormalForm form) {
    part.only({});
    steps.emplace_back(form);
  };
  if (type == "Sequence") {
    part.only({"normalizers"});
    const Part all = part.at("normalizers");
    for (std::size_t i = 0; i < all.size(); ++i) add_normalizer(all.element(i), steps);
  } else if (type == "NFC") {
    add_form(NormalForm::nfc);
  } else if (type == "NFD") {
    add_form(NormalForm::nfd);
  } else if (type == "NFKC") {
    add_form(NormalForm::nfkc);
  } else if (type == "NFKD") {
    add_form(NormalForm::nfkd);
  } else if (type == "Nmt") {
    part.only({});
    steps.emplace_back(NmtStep{});
  } else if (type == "Lowercase") {
    part.only({});
    steps.emplace_back(LowercaseStep{});
  } else if (type == "StripAccents") {
    part.only({});
    steps.emplace_back(StripAccentsStep{});
  } else if (type == "Strip") {
    part.only({"strip_left", "strip_right"});
    steps.emplace_back(StripStep{part.flag("strip_left"), part.flag("strip_right")});
  } else if (type == "Prepend") {
    part.only({"prepend"});
    PrependStep prepend = {part.object().text("prepend")};
    if (prepend.text.empty()) part.refuse("'prepend' is empty");
    steps.emplace_back(std::move(prepend));
  } else if (type == "Replace") {
    ReplaceStep step = read_replace(part);
    if (step.pattern && step.pattern->may_match_nothing())
      part.at("pattern").refuse("a pattern that matches an empty text is not supported");
    steps.emplace_back(std::move(step));
  } else if (type == "Precompiled") {
    part.only({"precompiled_charsmap"});
    const auto blob = decode_base64(part.object().text("precompiled_charsmap"));
    if (!blob) part.refuse("'precompiled_charsmap' must be base64");
    steps.emplace_back(CharMapStep{std::make_shared<CharMap>(*blob, part.where)});
  } else {
    part.unsupported(type, {"NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents",
                            "Strip", "Prepend", "Replace", "Precompiled", "Sequence"});
  }
}

void add_decoder(const Part& part, DecodeSteps& steps) {
  const std::string type = part.type();
  if (type == "Sequence") {
    part.only({"decoders"});
    const Part all = part.at("decoders");
    for (std::size_t i = 0; i < all.size(); ++i) add_decoder(all.element(i), steps);
  } else if (type == "ByteLevel") {
    (void)read_byte_level(part);
    steps.emplace_back(ByteLevelDecode{});
  } else if (type == "ByteFallback") {
    part.only({});
    steps.emplace_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    part.only({});
    steps.emplace_back(FuseDecode{});
  } else if (type == "Metaspace") {
    part.only({"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    steps.emplace_back(
        MarkDecode{read_character(part, "replacement"), read_prefix(part) != PrefixWhen::never});
  } else if (type == "Replace") {
    steps.emplace_back(read_replace(part));
  } else if (type == "Strip") {
    part.only({"content", "start", "stop"});
    constexpr std::int64_t kMost = 1 << 16;
    steps.emplace_back(StripDecode{read_character(part, "content"),
                                   part.object().integer("start", 0, kMost),
                                   part.object().integer("stop", 0, kMost)});
  } else {
    part.unsupported(
        type, {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "Sequence"});
  }
}

// ---- the frame

TokenId token_of(const Part& part, const Vocabulary& vocabulary, const std::string& name,
                 std::int64_t id) {
  if (vocabulary.text(static_cast<TokenId>(id)) != std::optional<std::string_view>(name)) {
    part.refuse(
        format("the token {} with id {} is not one of the vocabulary", in_quotes(name), id));
  }
  return static_cast<TokenId>(id);
}

std::vector<TokenId> read_template_token(const Part& tokens, const std::string& name,
                                         const Vocabulary& vocabulary) {
  const Part token = tokens.at(name);
  token.only({"id", "ids", "tokens"});
  (void)token.object().text("id");
  const Part ids = token.at("ids");
  const Part texts = token.at("tokens");
  if (ids.size() != texts.size()) token.refuse("as many 'ids' as 'tokens' are expected");
  std::vector<TokenId> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Json& id = ids.json[i];
    const Json& text = texts.json[i];
    if (!id.is_number_unsigned() || !text.is_string() ||
        id.get<std::uint64_t>() >= Vocabulary::kMostIds)
      token.refuse("'ids' must be ids and 'tokens' texts");
    result.push_back(token_of(token, vocabulary, text.get<std::string>(), id.get<std::int64_t>()));
  }
  return result;
}

Frame read_template(const Part& part, const Vocabulary& vocabulary) {
  part.only({"single", "pair", "special_tokens"});
  const Part single = part.at("single");
  (void)part.at("pair").size();
  Frame frame;
  int texts = 0;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const Part element = single.element(i);
    element.only({"Sequence", "SpecialToken"});
    if (element.json.size() != 1) element.refuse("either 'Sequence' or 'SpecialToken' is expected");
    const Part what = element.at(element.has("Sequence") ? "Sequence" : "SpecialToken");
    (void)what.object().integer("type_id", 0, std::numeric_limits<std::uint32_t>::max());
    if (element.has("Sequence")) {
      if (element.at("Sequence").object().text("id") != "A" || ++texts > 1)
        element.refuse("the frame of one text must have the text A once");
      continue;
    }
    const std::string name = element.at("SpecialToken").object().text("id");
    const auto ids = read_template_token(part.at("special_tokens"), name, vocabulary);
    auto& side = texts == 0 ? frame.before : frame.behind;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (texts == 0) single.refuse("the frame of one text must have the text A once");
  return frame;
}

// ["</s>", 2]
TokenId read_named_id(const Part& part, const std::string& key, const Vocabulary& vocabulary) {
  const Part pair = part.at(key);
  if (pair.size() != 2 || !pair.json[0].is_string() || !pair.json[1].is_number_unsigned() ||
      pair.json[1].get<std::uint64_t>() >= Vocabulary::kMostIds)
    pair.refuse("a token and its id are expected");
  return token_of(pair, vocabulary, pair.json[0].get<std::string>(),
                  pair.json[1].get<std::int64_t>());
}

}  // namespace

// ---- Part

void Part::only(std::initializer_list<std::string_view> members) const {
  (void)object();
  for (const auto& item : json.items()) {
    if (item.key() == "type" || std::ranges::find(members, item.key()) != members.end()) continue;
    refuse(format("{} is not supported", in_quotes(item.key())));
  }
}

Part Part::element(std::size_t index) const {
  return {json[index], format("{}[{}]", where, index)};
}

std::size_t Part::size() const {
  if (!json.is_array()) refuse("an array is expected");
  return json.size();
}

bool Part::has(const std::string& key) const {
  const JsonObject o = object();
  return o.has(key) && !o.at(key).is_null();
}

bool Part::flag(const std::string& key) const {
  const Json& value = object().at(key);
  if (!value.is_boolean()) object().refuse(key, "true or false");
  return value.get<bool>();
}

bool Part::flag_if_there(const std::string& key, bool absent) const {
  return object().has(key) ? flag(key) : absent;
}

bool Part::flag_or_null(const std::string& key, bool absent) const {
  return has(key) ? flag(key) : absent;
}

std::string Part::text(const std::string& key, std::string_view absent) const {
  return has(key) ? object().text(key) : std::string(absent);
}

void Part::refuse(std::string_view what) const {
  fail(ErrorCode::data, format("{}: {}", where, what));
}

void Part::unsupported(std::string_view name, std::initializer_list<std::string_view> known) const {
  fail(ErrorCode::data, format("{}: {} is not supported; supported are {}", where, in_quotes(name),
                               fmt::join(known, ", ")));
}

// ---- parts

std::vector<AddedToken> read_added_tokens(const Part& part) {
  std::vector<AddedToken> tokens;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const Part token = part.element(i);
    token.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken added;
    added.text = token.object().text("content");
    added.id = static_cast<TokenId>(token.object().integer("id", 0, Vocabulary::kMostIds - 1));
    added.single_word = token.flag("single_word");
    added.lstrip = token.flag("lstrip");
    added.rstrip = token.flag("rstrip");
    added.special = token.flag("special");
    added.normalized = token.flag("normalized");
    if (added.text.empty()) token.refuse("an added token without text");
    tokens.push_back(std::move(added));
  }
  return tokens;
}

NormalizerSteps read_normalizer(const Part& part) {
  NormalizerSteps steps;
  if (!part.json.is_null()) add_normalizer(part, steps);
  return steps;
}

PreTokenizer read_pre_tokenizer(const Part& part) {
  PreTokenizer steps;
  if (!part.json.is_null()) add_pre_tokenizer(part, steps);
  return steps;
}

DecodeSteps read_decoder(const Part& part) {
  DecodeSteps steps;
  if (!part.json.is_null()) add_decoder(part, steps);
  check_decode_steps(steps, part.where);
  return steps;
}

Frame read_post_processor(const Part& part, const Vocabulary& vocabulary) {
  Frame frame;
  if (part.json.is_null()) return frame;
  const std::string type = part.type();
  if (type == "Sequence") {
    part.only({"processors"});
    const Part all = part.at("processors");
    for (std::size_t i = 0; i < all.size(); ++i) {
      Frame next = read_post_processor(all.element(i), vocabulary);
      if (!next.adds()) continue;
      // The reference takes what the first has made for a pair of texts.
      if (frame.adds()) all.element(i).refuse("a second one that adds tokens is not supported");
      frame = std::move(next);
    }
  } else if (type == "ByteLevel") {  // moves offsets only, which nobody asks for
    (void)read_byte_level(part);
  } else if (type == "TemplateProcessing") {
    return read_template(part, vocabulary);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
    frame.before = {read_named_id(part, "cls", vocabulary)};
    frame.behind = {read_named_id(part, "sep", vocabulary)};
  } else {
    part.unsupported(type, {"TemplateProcessing", "ByteLevel", "BertProcessing",
                            "RobertaProcessing", "Sequence"});
  }
  return frame;
}

}  // namespace dew::tokenizer_json
