#include "gristmill/merge.hpp"

#include <array>
#include <utility>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

constexpr std::array<std::pair<const char*, TieBreak>, 4> kTieBreaks = {{
    {"greatest-bytes", TieBreak::greatest_bytes},
    {"smallest-ids", TieBreak::smallest_ids},
    {"huggingface", TieBreak::huggingface},
    {"first-seen", TieBreak::first_seen},
}};
constexpr std::array<std::pair<const char*, MergeLoop>, 3> kLoops = {{
    {"automatic", MergeLoop::automatic},
    {"sequential", MergeLoop::sequential},
    {"rounds", MergeLoop::rounds},
}};

template <class Value, std::size_t N>
Value parse(const std::array<std::pair<const char*, Value>, N>& table, const std::string& name, const char* what) {
    for (const auto& [known, value] : table) {
        if (name == known) return value;
    }
    throw nb::value_error((std::string(what) + " '" + name + "' is unknown").c_str());
}

MergeRun learn(const WordTable& words, std::uint32_t num_merges, const std::string& tie_break,
               std::uint32_t max_token_bytes, const std::optional<InputMerges>& given, int num_threads,
               const std::string& loop, nb::object on_progress) {
    MergeOptions options;
    options.num_merges = num_merges;
    options.tie_break = parse(kTieBreaks, tie_break, "tie_break");
    options.max_token_bytes = max_token_bytes;
    options.num_threads = parse_threads(num_threads);
    options.loop = parse(kLoops, loop, "loop");
    const std::vector<Merge> first = given ? parse_merges(*given) : std::vector<Merge>();
    Watch watch(std::move(on_progress));
    return watch.run([&] { return learn_merges(words, first, options, watch.monitor()); });
}

nb::ndarray<nb::numpy, std::uint32_t, nb::shape<-1, 2>> merges_of(const MergeRun& run) {
    auto* flat = new std::vector<std::uint32_t>();
    flat->reserve(2 * run.merges.size());
    for (const auto& [left, right] : run.merges) {
        flat->push_back(left);
        flat->push_back(right);
    }
    nb::capsule owner(flat, [](void* p) noexcept { delete static_cast<std::vector<std::uint32_t>*>(p); });
    return nb::ndarray<nb::numpy, std::uint32_t, nb::shape<-1, 2>>(flat->data(), {run.merges.size(), 2}, owner);
}

nb::dict stats_of(const MergeRun& run) {
    nb::dict figures;
    figures["num_symbols"] = run.num_symbols;
    figures["num_pairs"] = run.num_pairs;
    figures["num_rounds"] = run.num_rounds;
    figures["num_rebuilds"] = run.num_rebuilds;
    figures["setup_seconds"] = run.setup_seconds;
    figures["loop_seconds"] = run.loop_seconds;
    return figures;
}

}  // namespace

void register_merge(nb::module_& m) {
    using namespace nb::literals;
    m.attr("TIE_BREAKS") =
        nb::make_tuple(kTieBreaks[0].first, kTieBreaks[1].first, kTieBreaks[2].first, kTieBreaks[3].first);
    nb::class_<MergeRun>(m, "MergeRun")
        .def_prop_ro("merges", &merges_of, nb::rv_policy::automatic)
        .def_prop_ro(
            "counts", [](const MergeRun& run) { return to_array(run.counts); }, nb::rv_policy::automatic)
        .def_prop_ro("stats", &stats_of);
    m.def("learn_merges", &learn, "words"_a, nb::kw_only(), "num_merges"_a, "tie_break"_a = "greatest-bytes",
          "max_token_bytes"_a = 0, "given"_a.noconvert() = nb::none(), "num_threads"_a = 0, "loop"_a = "automatic",
          "on_progress"_a = nb::none());
}

}  // namespace gristmill::bindings
