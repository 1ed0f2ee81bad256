// The first sizes of tables that grow.
#pragma once

#include <cstddef>

namespace gristmill {

// Fuzz builds start small, because clearing large tables takes longer than the rest of an execution, and because short
// inputs then make tables grow.
constexpr std::size_t first_size([[maybe_unused]] std::size_t usual, [[maybe_unused]] std::size_t in_fuzz_builds) {
#if defined(GRISTMILL_FUZZ)
    return in_fuzz_builds;
#else
    return usual;
#endif
}

}  // namespace gristmill
