// dew bench, with programs beside it that only look like benchmarks.
#include <sys/stat.h>

#include "tests/cli/program.h"

namespace dew {
namespace {

class Bench : public testing::Test {
 protected:
  Bench() {
    std::filesystem::copy_file(std::getenv("DEW_PROGRAM"), program_);
    std::filesystem::create_directory(directory_ / "bench");
  }

  // Writes its arguments, and one row if the filter is its name or is not there.
  void add(const std::string& name) {
    add_script(name, "name=" + name + R"(
for word; do case $word in
  --benchmark_out=*) out=${word#*=} ;;
  --benchmark_filter=$name) ;;
  --benchmark_filter=*) exit 0 ;;
esac; done
echo table of $name
echo "{\"context\": {\"num_cpus\": 2}, \"benchmarks\": [{\"name\": \"$name\", \"words\": \"$*\"}]}" > $out
)");
  }
  void add_script(const std::string& name, const std::string& text) {
    const Path file = directory_ / "bench" / name;
    write_text(file, "#!/bin/sh\n" + text);
    ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  }
  Outcome bench(Words arguments) {
    arguments.insert(arguments.begin(), "bench");
    return dew(arguments, {.program = program_});
  }

  TemporaryDirectory directory_;
  Path program_ = directory_ / "dew";
};

TEST_F(Bench, JoinsTheReportsOfAllPrograms) {
  add("one");
  add("two");
  const Outcome outcome = bench({"--min-time", "0.25"});
  expect_done(outcome);
  const Json report = Json::parse(outcome.out);  // the tables are not in it
  EXPECT_EQ(report["context"]["num_cpus"], 2);
  ASSERT_EQ(report["benchmarks"].size(), 2u);
  EXPECT_EQ(report["benchmarks"][0]["program"], "one");
  EXPECT_EQ(report["benchmarks"][1]["name"], "two");
  const std::string words = report["benchmarks"][1]["words"];
  EXPECT_NE(words.find("--benchmark_min_time=0.25"), words.npos) << words;
  EXPECT_NE(outcome.err.find("table of two"), outcome.err.npos) << outcome.err;
}

TEST_F(Bench, NamesAndFiltersChoose) {
  add("one");
  add("two");
  EXPECT_EQ(Json::parse(bench({"two"}).out)["benchmarks"].size(), 1u);
  const Json report = Json::parse(bench({"--filter", "one"}).out);
  ASSERT_EQ(report["benchmarks"].size(), 1u);
  EXPECT_EQ(report["benchmarks"][0]["name"], "one");
  EXPECT_EQ(bench({"--list"}).out, "one\ntwo\n");
}

TEST_F(Bench, Errors) {
  expect_error(bench({}), 2, "this program was built without its benchmarks");
  add("one");
  expect_error(bench({"three"}), 2, "there is no benchmark program 'three'");
  expect_error(bench({"--filter", "nothing"}), 2, "no benchmark matches --filter 'nothing'");
  expect_error(bench({"--min-time", "0"}), 2, "--min-time = 0, but it must be above 0");
  add_script("broken", "exit 3");
  expect_error(bench({"broken"}), 1, "ended with status 3");
}

}  // namespace
}  // namespace dew
