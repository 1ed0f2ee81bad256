#include "gristmill/count.hpp"

#include <memory>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

// Passes the bytes that the core writes to a Python function.
Write write_to(const nb::callable& function, Watch& watch) {
    return [&](std::string_view data) { watch.with_gil([&] { function(nb::bytes(data.data(), data.size())); }); };
}

// (end, checksum, num_words, num_bytes) of each run.
Array<std::uint64_t> to_numbers(const std::vector<RunEntry>& entries) {
    std::vector<std::uint64_t> numbers;
    for (const RunEntry& entry : entries)
        numbers.insert(numbers.end(), {entry.end, entry.checksum, entry.num_words, entry.num_bytes});
    return to_array(std::move(numbers));
}

nb::dict to_figures(const CountStats& stats) {
    nb::dict figures;
    figures["source_bytes"] = stats.source_bytes;
    figures["num_pieces"] = stats.num_pieces;
    figures["num_words"] = stats.num_words;
    figures["num_spilled_runs"] = stats.num_spilled_runs;
    figures["count_seconds"] = stats.count_seconds;
    figures["join_seconds"] = stats.join_seconds;
    return figures;
}

std::size_t parse_partitions(std::size_t num_partitions) {
    if (num_partitions < 1 || num_partitions > 65536)
        throw std::invalid_argument("num_partitions must be between 1 and 65536");
    return num_partitions;
}

// The native counter, and the Python objects that it needs.
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
    void add_file_ranges(const nb::sequence& given) {
        std::vector<FileRange> ranges;
        for (nb::handle item : given) {
            const auto range = nb::cast<nb::tuple>(item);
            ranges.push_back({file_system_path(range[0]), nb::cast<std::uint64_t>(range[1]),
                              nb::cast<std::uint64_t>(range[2]), nb::cast<std::uint64_t>(range[3]),
                              nb::cast<std::int64_t>(range[4])});
        }
        run([&](Counter& counter) {
            FileTexts files(ranges);
            counter.add(files);
        });
    }
    void add_texts(const nb::sequence& texts) {
        const nb::tuple kept(texts);  // holds the references while the GIL is released, even if the list changes
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
        return nb::make_tuple(std::move(words), to_figures(stats));
    }
    nb::tuple finish_runs(const nb::callable& write) {
        CountStats stats;
        const std::vector<RunEntry> entries =
            run([&](Counter& counter) { return counter.finish_runs(write_to(write, watch_), stats); });
        counter_.reset();
        return nb::make_tuple(to_numbers(entries), to_figures(stats));
    }

  private:
    Counter& open() {
        if (!counter_) throw std::invalid_argument("this counter has finished or failed. Create a new one.");
        return *counter_;
    }
    // After an error the counter contains only part of the texts and can no longer be used.
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

// The native merger. A damaged run raises DamagedPartError, which makes its task run again.
class PyRunMerger {
  public:
    PyRunMerger(RunOrder order, const std::string& spill_folder, std::uint64_t memory_limit, nb::object on_progress)
        : watch_(std::move(on_progress)), merger_(order, spill_folder, memory_limit, watch_.monitor()) {}

    void add(const std::string& name, nb::handle path, std::uint64_t begin, std::uint64_t end, std::uint64_t checksum,
             std::uint64_t base) {
        merger_.add({name, file_system_path(path), begin, end, checksum, base});
    }
    void reduce() {
        run([&] { merger_.reduce(); });
    }
    nb::tuple write_by_first(std::uint64_t min_frequency, const nb::callable& write) {
        std::uint64_t num_words = 0;
        RunEntry entry;
        run([&] { entry = merger_.write_by_first(min_frequency, write_to(write, watch_), num_words); });
        return nb::make_tuple(to_numbers({entry}), num_words);
    }
    WordTable make_table(std::uint64_t num_words, std::uint64_t num_bytes, std::uint64_t source_bytes) {
        WordTable table;
        run([&] { table = merger_.make_table(num_words, num_bytes, source_bytes); });
        return table;
    }

  private:
    template <class Work>
    void run(const Work& work) {
        try {
            watch_.run(work);
        } catch (const DamagedRun& damage) {
            using namespace nb::literals;
            const nb::object type = nb::module_::import_("gristmill.executors.work_folder").attr("DamagedPartError");
            const nb::object error = type(damage.what(), "task"_a = damage.name);
            PyErr_SetObject(type.ptr(), error.ptr());
            throw nb::python_error();
        }
    }
    Watch watch_;
    RunMerger merger_;
};

nb::object write_table_runs(const WordTable& words, std::size_t num_partitions, const nb::callable& write) {
    Watch watch;
    std::vector<RunEntry> entries;
    watch.run([&] { entries = write_runs(words, num_partitions, write_to(write, watch), watch.monitor()); });
    return nb::cast(to_numbers(entries));
}

}  // namespace

void register_count(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<PyCounter>(m, "Counter")
        .def(
            "__init__",
            [](PyCounter* self, const std::string& pattern, const nb::sequence& special_tokens, int num_threads,
               const std::optional<std::string>& kernel, std::uint64_t block_bytes, std::uint64_t memory_limit,
               nb::handle spill_folder, std::uint64_t min_frequency, std::size_t num_partitions,
               nb::object on_progress) {
                CountOptions options;
                options.pattern = parse_pattern(pattern);
                options.kernel = parse_kernel(kernel);
                options.specials = parse_specials(special_tokens);
                options.num_threads = parse_threads(num_threads);
                options.block_bytes = block_bytes;
                options.memory_limit = memory_limit;
                options.spill_folder = file_system_path(spill_folder);
                options.min_frequency = min_frequency;
                options.num_partitions = parse_partitions(num_partitions);
                new (self) PyCounter(options, std::move(on_progress));
            },
            nb::kw_only(), "pattern"_a, "special_tokens"_a = nb::make_tuple(), "num_threads"_a = 0,
            "kernel"_a = nb::none(), "block_bytes"_a = 0, "memory_limit"_a = 0, "spill_folder"_a = "",
            "min_frequency"_a = 1, "num_partitions"_a = 1, "on_progress"_a = nb::none())
        .def("add_files", &PyCounter::add_files, "names"_a)
        .def("add_file_ranges", &PyCounter::add_file_ranges, "ranges"_a)
        .def("add_texts", &PyCounter::add_texts, "texts"_a)
        .def("add_spans", &PyCounter::add_spans, "text"_a, "begins"_a.noconvert(), "ends"_a.noconvert())
        .def("last_cut", &PyCounter::last_cut, "text"_a, "start"_a = 0)
        .def("finish", &PyCounter::finish)
        .def("finish_runs", &PyCounter::finish_runs, "write"_a);
    nb::class_<PyRunMerger>(m, "RunMerger")
        .def(
            "__init__",
            [](PyRunMerger* self, bool by_first, nb::handle spill_folder, std::uint64_t memory_limit,
               nb::object on_progress) {
                const RunOrder order = by_first ? RunOrder::by_first : RunOrder::by_word;
                new (self) PyRunMerger(order, file_system_path(spill_folder), memory_limit, std::move(on_progress));
            },
            nb::kw_only(), "by_first"_a, "spill_folder"_a, "memory_limit"_a, "on_progress"_a = nb::none())
        .def("add", &PyRunMerger::add, nb::kw_only(), "name"_a, "path"_a, "begin"_a, "end"_a, "checksum"_a, "base"_a)
        .def("reduce", &PyRunMerger::reduce)
        .def("write_by_first", &PyRunMerger::write_by_first, "min_frequency"_a, "write"_a)
        .def("make_table", &PyRunMerger::make_table, nb::kw_only(), "num_words"_a, "num_bytes"_a, "source_bytes"_a);
    m.def("write_runs", &write_table_runs, "words"_a, "num_partitions"_a, "write"_a);
}

}  // namespace gristmill::bindings
