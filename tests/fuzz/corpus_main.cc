// Runs a fuzz target over files, without a fuzzer: what is in the corpus, and what fuzzing has
// found, is tested by every build. usage: fuzz_x FILE_OR_DIRECTORY...
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Path = std::filesystem::path;

std::vector<Path> files_of(int count, char** names) {
  std::vector<Path> files;
  for (int i = 0; i < count; ++i) {
    if (std::filesystem::is_directory(names[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(names[i])) {
        files.push_back(entry.path());
      }
    } else {
      files.emplace_back(names[i]);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Memory as tools/fuzz allows it. The address sanitizer reserves terabytes and has limits of its
// own.
void limit_memory() {
#ifndef DEW_SANITIZED
  constexpr rlim_t kMost = rlim_t{512} << 20;
  const rlimit limit{.rlim_cur = kMost, .rlim_max = kMost};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::perror("setrlimit");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  constexpr auto kLongest = std::chrono::seconds(5);
  const std::vector<Path> files = files_of(argc - 1, argv + 1);
  if (files.empty()) {
    std::fprintf(stderr, "no inputs\n");
    return 1;
  }
  limit_memory();
  for (const Path& file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());  // the last one is what a crash belongs to
    std::ifstream stream(file, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(stream), {}};
    const auto begin = std::chrono::steady_clock::now();
    dew::fuzz::run(input);
    if (std::chrono::steady_clock::now() - begin > kLongest) dew::fuzz::broken("too slow");
  }
  std::printf("%zu inputs\n", files.size());
  return 0;
}
