// Runs a fuzz target without a fuzzer: on every stored file, then on inputs generated from a fixed seed.
//
//   smoke_scan RUNS FOLDER...
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz.hpp"

namespace {

using Random = std::mt19937;

constexpr std::size_t kMaxBytes = 400;

std::vector<std::string> stored_inputs(const std::string& folder) {
    std::vector<std::filesystem::path> paths;
    if (std::filesystem::is_directory(folder)) {
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            if (entry.is_regular_file()) paths.push_back(entry.path());
        }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> inputs;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return inputs;
}

// Few distinct bytes make repetition likely, and with it merges, specials and equal words.
std::string random_bytes(Random& random, std::size_t size) {
    std::string alphabet = "ab '\n<|>{}\":\\";
    if (random() % 2) {
        alphabet.resize(1 + random() % alphabet.size());
    } else {
        for (int i = 0; i < 200; ++i) alphabet += static_cast<char>(random());
    }
    std::string bytes;
    while (bytes.size() < size) bytes += alphabet[random() % alphabet.size()];
    return bytes;
}

// Parts of stored inputs, with some bytes changed.
std::string spliced(Random& random, const std::vector<std::string>& stored) {
    std::string bytes;
    for (std::size_t parts = 1 + random() % 4; parts; --parts) {
        const std::string& from = stored[random() % stored.size()];
        const std::size_t begin = random() % (from.size() + 1);
        bytes += from.substr(begin, random() % 120);
    }
    for (std::size_t changes = random() % 4; changes && !bytes.empty(); --changes)
        bytes[random() % bytes.size()] = static_cast<char>(random());
    return bytes;
}

void run(const std::string& input) {
    const std::vector<std::uint8_t> exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
    const int runs = argc > 1 ? std::atoi(argv[1]) : 1000;
    std::vector<std::string> stored;
    for (int i = 2; i < argc; ++i) {
        for (std::string& input : stored_inputs(argv[i])) stored.push_back(std::move(input));
    }
    for (const std::string& input : stored) run(input);
    Random random(1);
    for (int i = 0; i < runs; ++i) {
        const bool from_stored = !stored.empty() && random() % 2;
        // The decisions at the end of an input always vary.
        const std::string text = from_stored ? spliced(random, stored) : random_bytes(random, random() % kMaxBytes);
        std::string decisions;
        for (std::size_t size = random() % 80; size; --size) decisions += static_cast<char>(random());
        run(text + decisions);
    }
    std::printf("%zu stored inputs, %d made\n", stored.size(), runs);
    return 0;
}
