// docs/config.md has a row for every key, made from the fields. DEW_UPDATE_GOLDEN=1 rewrites it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <variant>

#include "dew/base/file_test_support.h"
#include "dew/base/format.h"
#include "dew/train/config_fields.h"

namespace dew {
namespace {

constexpr const char* kFile = "docs/config.md";
constexpr const char* kBegin = "<!-- keys: made by config_docs_test -->\n";
constexpr const char* kEnd = "<!-- end of keys -->\n";

std::string kind_text(const ConfigField& field, const ConfigSlot& slot) {
  const std::string range = range_text(field.range);
  const std::string suffix = range == "any" ? "" : " " + range;
  if (std::holds_alternative<bool*>(slot)) return "true or false";
  if (std::holds_alternative<double*>(slot)) return "number" + suffix;
  if (std::holds_alternative<std::vector<std::int64_t>*>(slot)) return "integers" + suffix;
  if (std::holds_alternative<std::vector<LayoutRule>*>(slot)) return "list of rules";
  if (!std::holds_alternative<std::string*>(slot)) return "integer" + suffix;
  return field.choices.empty() ? "text" : format("`{}`", fmt::join(words(field.choices), "`, `"));
}

std::string row(const ConfigField& field) {
  TrainConfig defaults;
  const ConfigSlot slot = field.slot(defaults);
  const std::string value = value_text(slot);
  const std::string initial = field.required  ? "required"
                              : value.empty() ? "not set"
                                              : "`" + value + "`";
  const char* on_resume[] = {"may change", "may change, noted", "fixed"};
  return format("| `{}` | {} | {} | {} | {} |\n", field.key, kind_text(field, slot), initial,
                on_resume[static_cast<int>(field.on_resume)], field.doc);
}

std::string tables() {
  std::string text;
  for (const ConfigSection& section : config_sections()) {
    text += format(
        "\n### `[{}]`\n\n| key | value | default | at a resume | meaning "
        "|\n|---|---|---|---|---|\n",
        section.name);
    for (const ConfigField& field : section.fields) text += row(field);
  }
  return text + "\n";
}

TEST(ConfigDocs, EveryKeyIsDocumented) {
  std::string document = read_text(kFile);
  const std::size_t begin = document.find(kBegin), end = document.find(kEnd);
  ASSERT_NE(begin, document.npos) << "run from the repository root";
  ASSERT_NE(end, document.npos);
  const std::size_t first = begin + std::string(kBegin).size();
  if (std::getenv("DEW_UPDATE_GOLDEN") != nullptr) {
    write_text(kFile, document.replace(first, end - first, tables()));
    return;
  }
  EXPECT_EQ(document.substr(first, end - first), tables()) << "run tools/update_golden test_train";
}

}  // namespace
}  // namespace dew
