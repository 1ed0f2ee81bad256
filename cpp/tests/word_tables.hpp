// Word tables of tests, from words written out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gristmill/count.hpp"

namespace gristmill {

// For CountOptions::smaller_tables. Tables of the usual size take 5 MiB, and ThreadSanitizer tracks every byte of them.
#if defined(__SANITIZE_THREAD__)
inline constexpr unsigned kSmallerTables = 10;
#else
inline constexpr unsigned kSmallerTables = 0;
#endif

inline WordTable table_of(const std::vector<std::pair<std::string, std::uint64_t>>& words) {
    WordTable table;
    table.offsets.push_back(0);
    for (const auto& [word, count] : words) {
        table.firsts.push_back(table.bytes.size());
        table.bytes.insert(table.bytes.end(), word.begin(), word.end());
        table.offsets.push_back(table.bytes.size());
        table.counts.push_back(count);
    }
    return table;
}

}  // namespace gristmill
