// The word that somebody who made a slip probably meant.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace dew {

constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

// Edits from one text to the other: letters put in, left out, changed, or two neighbours swapped.
// If there are more than `most`, some number above it. Takes a.size() x b.size() time at the worst.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t most = kNoLimit);

// The first of the words that the fewest edits turn `text` into. REQUIRES: there is a word.
std::string_view nearest(std::string_view text, std::span<const std::string_view> words);

}  // namespace dew
