// The same texts from every source that the core supports: in memory, as ranges of one buffer, in files.
#pragma once

#include <unistd.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "fuzz.hpp"
#include "gristmill/corpus.hpp"

namespace gristmill::fuzz {

// A file that no other process sees.
class PrivateFile {
  public:
    explicit PrivateFile(std::string_view text) {
#if defined(__linux__)
        descriptor_ = memfd_create("gristmill-fuzz", 0);
        path_ = "/proc/self/fd/" + std::to_string(descriptor_);
#else
        char name[] = "/tmp/gristmill-fuzz-XXXXXX";
        descriptor_ = mkstemp(name);
        path_ = name;
#endif
        CHECK(descriptor_ >= 0 && write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    PrivateFile(const PrivateFile&) = delete;
    PrivateFile& operator=(const PrivateFile&) = delete;
    ~PrivateFile() {
        close(descriptor_);
        if (!path_.starts_with("/proc")) unlink(path_.c_str());
    }
    const std::string& path() const { return path_; }

  private:
    int descriptor_;
    std::string path_;
};

enum class Where : std::uint8_t { views, spans, files };
inline Where where_of(Input& input) {
    const std::uint8_t kind = input.byte();
    if (kind >= 224 && input.one_in(4)) return Where::files;
    return kind % 2 ? Where::views : Where::spans;
}

// Texts of one kind, without readable bytes around them.
class PlacedTexts {
  public:
    PlacedTexts(const std::vector<std::string_view>& texts, Where where) {
        if (where == Where::views) {
            std::vector<std::string_view> views;
            for (const std::string_view text : texts) {
                exact_.push_back(std::make_unique<ExactText>(text));
                views.push_back(exact_.back()->view());
            }
            texts_ = std::make_unique<ViewTexts>(std::move(views));
        } else if (where == Where::spans) {
            std::string all;
            for (const std::string_view text : texts) {
                begins_.push_back(static_cast<std::int64_t>(all.size()));
                all += text;
                ends_.push_back(static_cast<std::int64_t>(all.size()));
            }
            exact_.push_back(std::make_unique<ExactText>(all));
            texts_ =
                std::make_unique<SpanTexts>(Spans{exact_.back()->view(), begins_.data(), ends_.data(), begins_.size()});
        } else {
            std::vector<std::string> paths;
            for (const std::string_view text : texts) {
                files_.push_back(std::make_unique<PrivateFile>(text));
                paths.push_back(files_.back()->path());
            }
            texts_ = std::make_unique<FileTexts>(paths);
        }
    }
    Texts& texts() { return *texts_; }

  private:
    std::vector<std::unique_ptr<ExactText>> exact_;
    std::vector<std::unique_ptr<PrivateFile>> files_;
    std::vector<std::int64_t> begins_, ends_;
    std::unique_ptr<Texts> texts_;
};

// Cuts `text` into up to `most` texts, some of them empty.
inline std::vector<std::string_view> texts_of(Input& input, std::string_view text, std::size_t most) {
    std::vector<std::string_view> texts;
    for (std::size_t left = input.below(most); left; --left) {
        const std::size_t size = input.below(256) % (text.size() + 1);
        texts.push_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    texts.push_back(text);
    return texts;
}

}  // namespace gristmill::fuzz
