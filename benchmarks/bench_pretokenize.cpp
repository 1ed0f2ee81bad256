// Measures the boundary scan alone, on one thread, with text in memory: bench_pretokenize FILE PASSES PATTERN...
//
// Prints one line of JSON per pattern and kernel: wall and CPU seconds of every pass, number of pieces, and a checksum
// of the piece ends, which bench_pretokenize.py uses to check that all kernels find the same ends.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gristmill/pretokenize.hpp"

namespace {

using gristmill::BoundaryScanner;
using gristmill::Kernel;
using gristmill::Pattern;

std::vector<std::uint8_t> read_padded(const char* path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw std::runtime_error(std::string(path) + ": cannot be opened");
    const auto size = static_cast<std::size_t>(file.tellg());
    std::vector<std::uint8_t> text(size + gristmill::kTextPadding);
    file.seekg(0);
    if (!file.read(reinterpret_cast<char*>(text.data()), static_cast<std::streamsize>(size)))
        throw std::runtime_error(std::string(path) + ": cannot be read");
    return text;
}

struct Pieces {
    std::uint64_t count = 0;
    std::uint64_t checksum = 0;
};

// The minimum work of a caller: request each batch. The ends stay in the L1 cache.
std::uint64_t count_pieces(BoundaryScanner& scanner, const std::uint8_t* text, std::size_t size) {
    std::uint64_t count = 0;
    scanner.start(text, size);
    while (scanner.next()) count += scanner.size();
    return count;
}

Pieces check_pieces(BoundaryScanner& scanner, const std::uint8_t* text, std::size_t size) {
    Pieces pieces;
    scanner.start(text, size);
    while (scanner.next()) {
        pieces.count += scanner.size();
        for (std::size_t i = 0; i < scanner.size(); ++i) {
            const auto end = static_cast<std::uint64_t>(scanner.base() + scanner.ends()[i] - text);
            pieces.checksum = (pieces.checksum ^ end) * 0x9E3779B97F4A7C15u;
        }
    }
    return pieces;
}

struct Pass {
    double seconds;
    double cpu_seconds;  // equal to `seconds` on a quiet machine, and more reliable on a busy one
};

Pass time_pass(BoundaryScanner& scanner, const std::uint8_t* text, std::size_t size, std::uint64_t expected) {
    const std::clock_t cpu_start = std::clock();
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t count = count_pieces(scanner, text, size);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const double cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    if (count != expected) throw std::runtime_error("two passes found different numbers of pieces");
    return {elapsed.count(), cpu_seconds};
}

void bench(const std::string& pattern_name, Kernel kernel, const std::vector<std::uint8_t>& text, int num_passes) {
    const auto pattern = gristmill::pattern_from_name(pattern_name);
    if (!pattern) throw std::runtime_error(pattern_name + ": unknown pattern");
    const std::size_t size = text.size() - gristmill::kTextPadding;
    const auto scanner = gristmill::make_scanner(*pattern, kernel);
    const Pieces pieces = check_pieces(*scanner, text.data(), size);
    const std::string kernel_name(gristmill::kernel_name(kernel));
    std::printf(R"({"pattern": "%s", "kernel": "%s", "num_bytes": %zu, "num_pieces": %llu, "checksum": "%016llx", )",
                pattern_name.c_str(), kernel_name.c_str(), size, static_cast<unsigned long long>(pieces.count),
                static_cast<unsigned long long>(pieces.checksum));
    std::printf(R"("passes": [)");
    for (int i = 0; i < num_passes; ++i) {
        const Pass pass = time_pass(*scanner, text.data(), size, pieces.count);
        std::printf(R"(%s{"seconds": %.6f, "cpu_seconds": %.6f})", i ? ", " : "", pass.seconds, pass.cpu_seconds);
    }
    std::printf("]}\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: bench_pretokenize FILE PASSES PATTERN...\n");
        return 2;
    }
    try {
        const auto text = read_padded(argv[1]);
        for (int i = 3; i < argc; ++i)
            for (const Kernel kernel : gristmill::kAllKernels)
                if (gristmill::kernel_supported(kernel)) bench(argv[i], kernel, text, std::atoi(argv[2]));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_pretokenize: %s\n", error.what());
        return 1;
    }
}
