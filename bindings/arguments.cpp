#include <algorithm>
#include <thread>

#include "bindings.hpp"

namespace gristmill::bindings {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

Pattern parse_pattern(const std::string& name) {
    const std::optional<Pattern> pattern = pattern_from_name(name);
    if (!pattern) throw nb::value_error(("there is no native pattern '" + name + "'").c_str());
    return *pattern;
}

Kernel parse_kernel(const std::optional<std::string>& name) {
    if (!name) return default_kernel();
    const std::optional<Kernel> kernel = kernel_from_name(*name);
    if (!kernel || !kernel_supported(*kernel)) {
        throw nb::value_error(("kernel '" + *name + "' is unknown or not supported by this CPU").c_str());
    }
    return *kernel;
}

unsigned parse_threads(int num_threads) {
    if (num_threads < 0) throw nb::value_error("num_threads must not be negative");
    static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());  // takes microseconds
    if (!num_threads) return cores;
    // No result depends on this number; thousands of threads on a few cores would only be slow to start and stop.
    return std::min(static_cast<unsigned>(num_threads), 4 * cores + 16);
}

std::vector<std::string> parse_specials(const nb::sequence& specials) {
    std::vector<std::string> result;
    for (nb::handle item : specials) {
        const std::string_view bytes = view(nb::cast<nb::bytes>(item));
        if (bytes.empty()) throw nb::value_error("a special token must not be empty");
        result.emplace_back(bytes);
    }
    return result;
}

std::vector<Merge> parse_merges(const InputMerges& merges) {
    std::vector<Merge> result;
    result.reserve(merges.shape(0));
    for (std::size_t i = 0; i < merges.shape(0); ++i) result.emplace_back(merges(i, 0), merges(i, 1));
    return result;
}

std::string file_system_path(nb::handle name) {
    PyObject* encoded = nullptr;
    if (!PyUnicode_FSConverter(name.ptr(), &encoded)) throw nb::python_error();
    return std::string(view(nb::steal<nb::bytes>(encoded)));
}

}  // namespace gristmill::bindings
