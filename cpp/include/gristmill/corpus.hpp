// corpus: the documents that readers pass on, as ranges of one buffer rather than one object each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gristmill/json_fault.hpp"
#include "gristmill/kernel.hpp"

namespace gristmill {

// Document i is text[begins[i], ends[i]).
struct Spans {
    std::string_view text;
    const std::int64_t* begins;
    const std::int64_t* ends;
    std::size_t size;

    std::string_view operator[](std::size_t i) const {
        return text.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(ends[i] - begins[i]));
    }
};

// Throws std::invalid_argument unless every range is inside the text.
void check_spans(const Spans& spans);

// Finds the ranges between separators and the one after the last: always one more range than there are separators.
void split_spans(std::string_view text, std::string_view separator, std::vector<std::int64_t>& begins,
                 std::vector<std::int64_t>& ends);
std::size_t count_newlines(std::string_view text);

// Texts by number, in memory or in files. Each is complete: its end is an end of text for the pattern. Any thread may
// request any part of a text until finished() has been called for all of its bytes, because each text is used once.
class Texts {
  public:
    virtual ~Texts() = default;
    virtual std::size_t size() const = 0;
    virtual std::uint64_t num_bytes(std::size_t text) const = 0;

    // A text in memory. `readable`: the number of bytes that may be read from `data`; at least the size of the text.
    struct View {
        const std::uint8_t* data;
        std::size_t readable;
    };
    // `data` is nullptr for a text that is not in memory; use read() then.
    virtual View view(std::size_t text) const = 0;
    // Copies text[at, at + size).
    virtual void read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size);
    // Called when another `num_bytes` of a text have been used, in any order, until all of its bytes are covered.
    virtual void finished(std::size_t /*text*/, std::uint64_t /*num_bytes*/) {}
};

// Texts in memory, which the caller keeps alive.
class ViewTexts final : public Texts {
  public:
    explicit ViewTexts(std::vector<std::string_view> texts) : texts_(std::move(texts)) {}
    std::size_t size() const override { return texts_.size(); }
    std::uint64_t num_bytes(std::size_t text) const override { return texts_[text].size(); }
    View view(std::size_t text) const override {
        return {reinterpret_cast<const std::uint8_t*>(texts_[text].data()), texts_[text].size()};
    }

  private:
    std::vector<std::string_view> texts_;
};

// Ranges of one buffer, which the caller keeps alive. Bytes after a range are readable up to the end of the buffer.
class SpanTexts final : public Texts {
  public:
    explicit SpanTexts(const Spans& spans) : spans_(spans) {}
    std::size_t size() const override { return spans_.size; }
    std::uint64_t num_bytes(std::size_t text) const override {
        return static_cast<std::uint64_t>(spans_.ends[text] - spans_.begins[text]);
    }
    View view(std::size_t text) const override {
        const auto begin = static_cast<std::size_t>(spans_.begins[text]);
        return {reinterpret_cast<const std::uint8_t*>(spans_.text.data()) + begin, spans_.text.size() - begin};
    }

  private:
    Spans spans_;
};

// A range of a file, and the state that the file must still have.
struct FileRange {
    std::string path;
    std::uint64_t begin, end;
    std::uint64_t file_bytes;
    std::int64_t modified_ns;
};

// Files, or ranges of files, one text each. A file is opened when its first bytes are read and closed when all are
// finished, so that a corpus may have more files than a process may have open. The state of a file is recorded when it
// is listed and compared at every read; a change in between throws InputChanged.
class FileTexts final : public Texts {
  public:
    // Throws FileError for a path that is not a regular file.
    explicit FileTexts(const std::vector<std::string>& paths);
    // Throws InputChanged for a file that differs from its recorded state.
    explicit FileTexts(const std::vector<FileRange>& ranges);
    ~FileTexts() override;
    std::size_t size() const override;
    std::uint64_t num_bytes(std::size_t text) const override;
    View view(std::size_t) const override { return {nullptr, 0}; }
    void read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size) override;
    void finished(std::size_t text, std::uint64_t num_bytes) override;

  private:
    class File;
    std::vector<std::unique_ptr<File>> files_;
};

// The name that Python uses: "bom", "not-object" and so on.
std::string_view json_fault_name(JsonFault fault);

struct JsonProblem {
    std::size_t line;  // counted from 0, blank lines included
    std::size_t byte;  // offset in the line
    JsonFault fault;
};

struct JsonTexts {
    std::unique_ptr<std::uint8_t[]> data;  // the texts, concatenated, and kTextPadding readable bytes after them
    std::size_t size = 0;
    std::vector<std::int64_t> begins, ends;
    std::size_t num_nulls = 0;           // objects skipped because their field is null
    std::optional<JsonProblem> problem;  // the problem that stopped extraction; texts of earlier lines are complete
};

// Extracts the member `field` of the objects in `lines`, one object per line. Skips lines of white space. If an object
// has the member more than once, the last one counts. Reads no byte outside `lines`.
//
//   {"id": 1, "text": "a\nb"}  ->  'a' 0x0A 'b'
JsonTexts extract_json(std::string_view lines, std::string_view field, Kernel kernel);

}  // namespace gristmill
