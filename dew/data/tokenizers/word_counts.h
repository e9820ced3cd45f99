// How often each word of a text occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"

namespace dew {

class WordCounts {
 public:
  void add(std::string_view word, std::int64_t count = 1);
  void add(const WordCounts& other);

  std::size_t size() const { return entries_.size(); }
  std::string_view word(std::size_t i) const {
    return std::string_view(texts_).substr(entries_[i].begin, entries_[i].bytes);
  }
  std::int64_t count(std::size_t i) const { return entries_[i].count; }

 private:
  struct Entry {
    std::size_t begin = 0, bytes = 0;
    std::uint64_t hash = 0;
    std::int64_t count = 0;
  };
  void grow();

  std::string texts_;
  std::vector<Entry> entries_;        // in the order of their first occurrence
  std::vector<std::uint32_t> slots_;  // open addressing; entry + 1, 0: empty
};

}  // namespace dew
