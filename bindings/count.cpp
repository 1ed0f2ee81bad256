#include "gristmill/count.hpp"

#include <memory>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

// The native counter with what it needs from Python kept beside it.
class PyCounter {
  public:
    PyCounter(const CountOptions& options, nb::object on_progress)
        : watch_(std::move(on_progress)), counter_(std::make_unique<Counter>(options, watch_.monitor())) {}

    void add_files(const nb::sequence& names) {
        std::vector<std::string> paths;
        for (nb::handle name : names) paths.push_back(file_system_path(name));
        run([&](Counter& counter) {
            FileTexts files(paths);
            counter.add(files);
        });
    }
    void add_texts(const nb::sequence& texts) {
        const nb::tuple kept(texts);  // holds the references while the GIL is released, whatever happens to the list
        std::vector<std::string_view> views;
        for (nb::handle text : kept) views.push_back(view(nb::cast<nb::bytes>(text)));
        ViewTexts in_memory(std::move(views));
        run([&](Counter& counter) { counter.add(in_memory); });
    }
    void add_spans(nb::handle text, const InputArray<std::int64_t>& begins, const InputArray<std::int64_t>& ends) {
        const Bytes bytes(text);
        SpanTexts stretches(parse_spans(bytes, begins, ends));
        run([&](Counter& counter) { counter.add(stretches); });
    }
    std::size_t last_cut(nb::handle text, std::size_t start) {
        const Bytes bytes(text);
        const GilReleased released;
        return open().last_cut(bytes.view(), start);
    }
    nb::tuple finish() {
        CountStats stats;
        WordTable words = run([&](Counter& counter) { return counter.finish(stats); });
        counter_.reset();
        nb::dict figures;
        figures["source_bytes"] = stats.source_bytes;
        figures["num_pieces"] = stats.num_pieces;
        figures["num_words"] = stats.num_words;
        figures["num_spilled_runs"] = stats.num_spilled_runs;
        figures["count_seconds"] = stats.count_seconds;
        figures["join_seconds"] = stats.join_seconds;
        return nb::make_tuple(std::move(words), figures);
    }

  private:
    Counter& open() {
        if (!counter_) throw std::invalid_argument("this counter has given its result, or failed; make a new one");
        return *counter_;
    }
    // After an error the counter holds part of the texts and is of no use any more.
    template <class Work>
    auto run(const Work& work) -> decltype(work(std::declval<Counter&>())) {
        Counter& counter = open();
        try {
            return watch_.run([&] { return work(counter); });
        } catch (...) {
            counter_.reset();
            throw;
        }
    }
    Watch watch_;
    std::unique_ptr<Counter> counter_;
};

}  // namespace

void register_count(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<PyCounter>(m, "Counter")
        .def(
            "__init__",
            [](PyCounter* self, const std::string& pattern, const nb::sequence& special_tokens, int num_threads,
               const std::optional<std::string>& kernel, std::uint64_t block_bytes, std::uint64_t memory_limit,
               nb::handle spill_folder, std::uint64_t min_frequency, nb::object on_progress) {
                CountOptions options;
                options.pattern = parse_pattern(pattern);
                options.kernel = parse_kernel(kernel);
                options.specials = parse_specials(special_tokens);
                options.num_threads = parse_threads(num_threads);
                options.block_bytes = block_bytes;
                options.memory_limit = memory_limit;
                options.spill_folder = file_system_path(spill_folder);
                options.min_frequency = min_frequency;
                new (self) PyCounter(options, std::move(on_progress));
            },
            nb::kw_only(), "pattern"_a, "special_tokens"_a = nb::make_tuple(), "num_threads"_a = 0,
            "kernel"_a = nb::none(), "block_bytes"_a = 0, "memory_limit"_a = 0, "spill_folder"_a = "",
            "min_frequency"_a = 1, "on_progress"_a = nb::none())
        .def("add_files", &PyCounter::add_files, "names"_a)
        .def("add_texts", &PyCounter::add_texts, "texts"_a)
        .def("add_spans", &PyCounter::add_spans, "text"_a, "begins"_a.noconvert(), "ends"_a.noconvert())
        .def("last_cut", &PyCounter::last_cut, "text"_a, "start"_a = 0)
        .def("finish", &PyCounter::finish);
}

}  // namespace gristmill::bindings
