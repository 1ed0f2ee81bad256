// corpus: what readers hand on. Documents are stretches of one buffer, never an object each.
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

// Throws std::invalid_argument unless every stretch lies inside the text.
void check_spans(const Spans& spans);

// The stretches between separators, the one after the last included: always one more than there are separators.
void split_spans(std::string_view text, std::string_view separator, std::vector<std::int64_t>& begins,
                 std::vector<std::int64_t>& ends);
std::size_t count_newlines(std::string_view text);

// Texts by number, wherever they lie. Each is complete in itself: its end is an end of text for the pattern. Any thread
// may ask for any part of a text until finished() has been called for all of its bytes: texts are used once.
class Texts {
  public:
    virtual ~Texts() = default;
    virtual std::size_t size() const = 0;
    virtual std::uint64_t num_bytes(std::size_t text) const = 0;

    // A text that lies in memory. `readable`: how many bytes may be read from `data` on; at least the text's own.
    struct View {
        const std::uint8_t* data;
        std::size_t readable;
    };
    // `data` is nullptr for a text that is not in memory: it must be read.
    virtual View view(std::size_t text) const = 0;
    // Copies text[at, at + size).
    virtual void read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size);
    // Called when another `num_bytes` of a text have been used, in any order; in the end for all of them.
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

// Stretches of one buffer, which the caller keeps alive: bytes after a stretch are readable up to the buffer's end.
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

// A stretch of a file, and what the file must be.
struct FileRange {
    std::string path;
    std::uint64_t begin, end;
    std::uint64_t file_bytes;
    std::int64_t modified_ns;
};

// Files, or stretches of them, each of them one text. A file is opened when its first bytes are read and closed when
// all are finished, so that a corpus may have more files than a process may open. Its state is taken when it is listed
// and compared at every step: a change while it is read is an error (InputChanged).
class FileTexts final : public Texts {
  public:
    // Throws FileError for a path that is no regular file.
    explicit FileTexts(const std::vector<std::string>& paths);
    // Throws InputChanged for a file that is no longer what it was.
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

// As Python has it: "bom", "not-object" and so on.
std::string_view json_fault_name(JsonFault fault);

struct JsonProblem {
    std::size_t line;  // from 0, blank lines counted
    std::size_t byte;  // in the line
    JsonFault fault;
};

struct JsonTexts {
    std::unique_ptr<std::uint8_t[]> data;  // the texts end to end, and kTextPadding more bytes that may be read
    std::size_t size = 0;
    std::vector<std::int64_t> begins, ends;
    std::size_t num_nulls = 0;           // objects left out because their field is null
    std::optional<JsonProblem> problem;  // what ended the work; the texts of the lines before it are there
};

// The texts of member `field` of the objects in `lines`, one a line; lines of white space only are passed over. Where
// an object has the member more than once, the last one counts. No byte outside `lines` is read.
//
//   {"id": 1, "text": "a\nb"}  ->  'a' 0x0A 'b'
JsonTexts extract_json(std::string_view lines, std::string_view field, Kernel kernel);

}  // namespace gristmill
