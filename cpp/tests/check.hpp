// A minimal test framework: CHECK reports the location and the expression, and the process fails at the end.
#pragma once

#include <cstdio>
#include <cstdlib>

inline int g_failures = 0;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            ++g_failures;                                                                      \
        }                                                                                      \
    } while (0)

inline int test_result() {
    if (g_failures) std::fprintf(stderr, "%d checks failed\n", g_failures);
    return g_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
