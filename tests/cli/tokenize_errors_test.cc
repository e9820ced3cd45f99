// Everything that a user or the world can do wrong with dew tokenize: nothing is left behind.
#include "tests/cli/error_case.h"

namespace dew {
namespace {

class TokenizeErrors : public testing::TestWithParam<ErrorCase> {
 protected:
  TokenizeErrors() {
    for (const char* name : {"a.txt", "old/x"}) {
      write_file(directory_ / name, "In the beginning God created the heaven and the earth.\n");
    }
    make_directory(directory_ / "nothing");
    write_file(directory_ / "empty.txt", "");
    write_file(directory_ / "short.txt", "x");
  }
  TemporaryDirectory directory_;
};

TEST_P(TokenizeErrors, Refused) { refuse("tokenize", GetParam(), directory_.path()); }

void add_loop(const Path& here) {
  std::filesystem::create_directory_symlink(here / "old", here / "old/again");
}

void write_tokenizer(const Path& here) {
  std::filesystem::copy_file("tests/data/tokenizers/gpt2/tokenizer.json", here / "t.json");
}

void deny_a(const Path& here) { make_unreadable(here / "a.txt"); }
void deny_directory(const Path& here) { make_unreadable(here / "old"); }

const Start kNobody = {.as_nobody = true};

const std::vector<ErrorCase> kRows = {
    // what is missing or too much
    {"NoArguments", {}, 2, {"dew tokenize: TEXT is required"}, {}, {}, "dew tokenize --help"},
    {"NoOut", {"a.txt"}, 2, {"--out is required"}},
    {"NoText", {"--out", "tokens"}, 2, {"TEXT is required"}},
    {"OutWithoutValue", {"a.txt", "--out"}, 2, {"--out needs a value"}},
    {"OutTwice", {"a.txt", "--out", "b", "--out", "c"}, 2, {"--out is given more than once"}},
    {"BeginningOfAnOption", {"x", "--js"}, 2, {"no option '--js'", "the nearest is --json"}},
    {"UnknownBeforeMissing", {"--ouut=x"}, 2, {"no option '--ouut=x'", "the nearest is --out"}},
    // the text
    {"Missing", {"none.txt", "--out", "tokens"}, 4, {"there is no 'none.txt'"}},
    {"MissingAfterAGoodOne", {"a.txt", "none.txt", "--out", "tokens"}, 4, {"'none.txt'"}},
    {"BelowAFile", {"a.txt/b", "--out", "tokens"}, 4, {"'a.txt/b'"}},
    {"Empty", {"empty.txt", "--out", "tokens"}, 4, {"there is no text: the one file is empty"}},
    {"EmptyName", {"", "--out", "tokens"}, 4, {"''"}},
    {"EmptyDirectory", {"nothing", "--out", "tokens"}, 4, {"there is no text: 0 files"}},
    {"TooShort",
     {"short.txt", "--out", "tokens"},
     4,
     {"too little text: 0.02 of 1 ids"},
     {},
     {},
     "more text"},
    {"NameIsNotUtf8", {"a\xff\n\x1b.txt", "--out", "tokens"}, 4, {"a\\xff \\x1b.txt"}},
    {"Unreadable",
     {"a.txt", "--out", "tokens"},
     4,
     {"'a.txt'", "Permission denied"},
     deny_a,
     kNobody},
    {"UnreadableDirectory",
     {"old", "--out", "tokens"},
     4,
     {"'old'", "Permission denied"},
     deny_directory,
     kNobody},
    {"Loop", {"old", "--out", "tokens"}, 4, {"again", "leads back to a directory above"}, add_loop},
    {"JsonLineIsBroken",
     {"a.jsonl", "--out", "tokens"},
     4,
     {"'a.jsonl': line 2, byte 5: it is not valid JSON"},
     [](const Path& here) { write_file(here / "a.jsonl", "{\"text\": \"x\"}\n{\"a\"\n"); },
     {},
     "--skip-invalid"},
    {"JsonLineWithoutText",
     {"a.jsonl", "--out", "tokens", "--text-field", "body"},
     4,
     {"'a.jsonl': line 1: the object has no member 'body'"},
     [](const Path& here) { write_file(here / "a.jsonl", "{\"text\": \"x\"}\n"); }},
    {"CompressedIsCutOff",
     {"old", "--out", "tokens"},
     4,
     {"x.gz' is cut off"},
     [](const Path& here) { write_file(here / "old/x.gz", "\x1f\x8b\x08"); }},
    {"CompressedIsNot",
     {"old", "--out", "tokens"},
     4,
     {"x.zst' is not what its name says"},
     [](const Path& here) { write_file(here / "old/x.zst", "text"); }},
    {"Archive",
     {"old", "--out", "tokens"},
     2,
     {"x.zip': .zip input is not supported"},
     [](const Path& here) { write_file(here / "old/x.zip", "PK"); },
     {},
     ".gz or .zst"},
    {"StandardInputTwice", {"-", "-", "--out", "t"}, 2, {"standard input (-) is named more than"}},
    {"NotUtf8",
     {"bad.txt", "--out", "t", "--tokenizer", "t.json"},
     4,
     {"'bad.txt': line 2, byte 2 (byte 5 of all): 0xff is not UTF-8"},
     [](const Path& here) {
       write_tokenizer(here);
       write_file(here / "bad.txt", "ab\nc\xff\n");
     },
     {},
     "--skip-invalid"},
    // the output
    {"OutIsAFile", {"a.txt", "--out", "short.txt"}, 2, {"'", "short.txt' exists and is not a dir"}},
    {"OutIsNotEmpty",
     {"a.txt", "--out", "old"},
     2,
     {"old' exists and is not empty"},
     {},
     {},
     "another name"},
    {"OutIsTheInput", {"old", "--out", "old"}, 2, {"old' exists and is not empty"}},
    {"OutBelowAFile",
     {"a.txt", "--out", "short.txt/tokens"},
     4,
     {"short.txt'", "there is a file of that name"}},
    {"OutCannotBeMade", {"a.txt", "--out", "/proc/tokens"}, 4, {"'/proc/tokens"}},
    {"OutIsEmptyText", {"a.txt", "--out", ""}, 2, {"no output directory was named"}},
    {"OutIsTooLong", {"a.txt", "--out", std::string(300, 'x')}, 4, {"File name too long"}},
    {"OutIsReadOnly",
     {"a.txt", "--out", "tokens"},
     4,
     {"tokens", "Permission denied"},
     make_read_only,
     kNobody},
    // values
    {"FractionZero",
     {"a.txt", "--out", "t", "--val-fraction", "0"},
     2,
     {"fraction is 0", "between 0 and 1"}},
    {"FractionOne", {"a.txt", "--out", "t", "--val-fraction", "1"}, 2, {"fraction is 1"}},
    {"FractionNegative", {"a.txt", "--out", "t", "--val-fraction=-0.5"}, 2, {"-0.5"}},
    {"FractionNan", {"a.txt", "--out", "t", "--val-fraction", "nan"}, 2, {"'nan'", "finite"}},
    {"FractionPercent",
     {"a.txt", "--out", "t", "--val-fraction", "2%"},
     2,
     {"--val-fraction = '2%'", "number"}},
    {"FractionText", {"a.txt", "--out", "t", "--val-fraction", "some"}, 2, {"'some'"}},
    {"FractionHuge", {"a.txt", "--out", "t", "--val-fraction", "1e999"}, 2, {"'1e999'"}},
    // tokenizers
    {"TokenizerUnknown",
     {"a.txt", "--out", "t", "--tokenizer", "bpe.json"},
     2,
     {"there is no tokenizer 'bpe.json'"},
     {},
     {},
     "'byte'"},
    {"TokenizerEmpty", {"a.txt", "--out", "t", "--tokenizer", ""}, 2, {"tokenizer ''"}},
    {"TokenizerIsNone",
     {"a.txt", "--out", "t", "--tokenizer", "short.txt"},
     4,
     {"short.txt: no SentencePiece model"}},
    {"TokenizerFileIsEmpty",
     {"a.txt", "--out", "t", "--tokenizer", "empty.txt"},
     4,
     {"the tokenizer 'empty.txt' is empty"}},
    {"TokenizerDirectoryHasNone",
     {"a.txt", "--out", "t", "--tokenizer", "old"},
     4,
     {"'old' has no tokenizer.json"}},
    {"TokenizerHasNoModel",
     {"a.txt", "--out", "t", "--tokenizer", "v.json"},
     4,
     {"'v.json' has no object 'model'", "merges.txt"},
     [](const Path& here) { write_file(here / "v.json", "{\"a\": 1}"); }},
    {"NoBegin",
     {"a.txt", "--out", "t", "--add-bos"},
     2,
     {"the tokenizer 'byte' has no begin token to add"}},
    // before anything is made
    {"FullOutput",
     {"a.txt", "--out", "t", "--json"},
     2,
     {"(No space left on device)"},
     {},
     {.full_stdout = true}},
    {"ClosedOutput",
     {"a.txt", "--out", "t", "--json"},
     2,
     {"cannot write to standard output (Bad file descriptor)"},
     {},
     {.close_stdout = true}},
};

INSTANTIATE_TEST_SUITE_P(All, TokenizeErrors,
                         testing::ValuesIn(kRows + common_errors("dew tokenize",
                                                                 {"a.txt", "--out", "tokens"})),
                         name_of);

}  // namespace
}  // namespace dew
