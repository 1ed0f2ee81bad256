#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "gristmill/corpus.hpp"
#include "gristmill/errors.hpp"

namespace gristmill {

void Texts::read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size) {
    std::memcpy(into, view(text).data + at, size);
}

class FileTexts::File {
  public:
    explicit File(const std::string& path) : path_(path), state_(state_of(-1, path)), size_(state_.size) {}
    explicit File(const FileRange& range)
        : path_(range.path), state_(state_of(-1, range.path)), begin_(range.begin), size_(range.end - range.begin) {
        check_size(range.file_bytes, state_.size);
        if (state_.modified_seconds * 1'000'000'000 + state_.modified_nanoseconds != range.modified_ns)
            throw InputChanged(path_, "it was written to or replaced");
        if (range.begin > range.end || range.end > state_.size)
            throw std::invalid_argument("a range of a file ends before it begins, or after the end of the file");
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }

    std::uint64_t size() const { return size_; }

    void read(std::uint64_t at, std::uint8_t* into, std::size_t size) {
        open_once();
        at += begin_;
        while (size) {
            const ssize_t got = ::pread(descriptor_, into, size, static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw FileError(errno, path_);
            if (got == 0) throw InputChanged(path_, "it ends before byte " + std::to_string(at + size));
            into += got;
            at += static_cast<std::uint64_t>(got);
            size -= static_cast<std::size_t>(got);
        }
    }

    void finished(std::uint64_t num_bytes) {
        if (num_finished_.fetch_add(num_bytes) + num_bytes != size_) return;
        open_once();
        check_unchanged();
        std::uint8_t more;
        if (::pread(descriptor_, &more, 1, static_cast<off_t>(state_.size)) > 0)
            throw InputChanged(path_, "it has more than its first " + std::to_string(state_.size) + " bytes now");
        // The path must still refer to the file that was read.
        const State named = state_of(-1, path_);
        if (!(named == state_)) throw InputChanged(path_, "it was replaced by another file");
        ::close(descriptor_);
        descriptor_ = -1;
    }

  private:
    struct State {
        std::uint64_t size = 0, device = 0, inode = 0;
        std::int64_t modified_seconds = 0, modified_nanoseconds = 0;
        bool operator==(const State&) const = default;
    };

    static State state_of(int descriptor, const std::string& path) {
        struct stat status;
        if ((descriptor >= 0 ? ::fstat(descriptor, &status) : ::stat(path.c_str(), &status)) != 0)
            throw FileError(errno, path);
        if (S_ISDIR(status.st_mode)) throw FileError(EISDIR, path);
        if (!S_ISREG(status.st_mode))
            throw FileError(ESPIPE, path);  // must support reads at any position, from any thread
        State state;
        state.size = static_cast<std::uint64_t>(status.st_size);
        state.device = static_cast<std::uint64_t>(status.st_dev);
        state.inode = static_cast<std::uint64_t>(status.st_ino);
#if defined(__APPLE__)
        state.modified_seconds = status.st_mtimespec.tv_sec;
        state.modified_nanoseconds = status.st_mtimespec.tv_nsec;
#else
        state.modified_seconds = status.st_mtim.tv_sec;
        state.modified_nanoseconds = status.st_mtim.tv_nsec;
#endif
        return state;
    }

    void open_once() {
        // Not std::call_once: after an exception, the next call hangs on some platforms and under ThreadSanitizer.
        if (is_open_.load(std::memory_order_acquire)) return;
        const std::lock_guard lock(opening_);
        if (is_open_.load(std::memory_order_relaxed)) return;
        // If this throws, the next thread runs it again, and the descriptor of the first attempt is still open.
        if (descriptor_ < 0) descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor_ < 0) throw FileError(errno, path_);
        check_unchanged();
        is_open_.store(true, std::memory_order_release);
    }

    void check_size(std::uint64_t before, std::uint64_t now) const {
        if (now != before) throw InputChanged(path_, std::to_string(before) + " bytes became " + std::to_string(now));
    }

    void check_unchanged() const {
        const State now = state_of(descriptor_, path_);
        check_size(state_.size, now.size);
        if (!(now == state_)) throw InputChanged(path_, "it was written to or replaced");
    }

    std::string path_;
    State state_;
    std::uint64_t begin_ = 0, size_;  // of the range that is the text
    std::mutex opening_;
    std::atomic<bool> is_open_{false};
    int descriptor_ = -1;
    std::atomic<std::uint64_t> num_finished_{0};
};

FileTexts::FileTexts(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) files_.push_back(std::make_unique<File>(path));
}

FileTexts::FileTexts(const std::vector<FileRange>& ranges) {
    for (const FileRange& range : ranges) files_.push_back(std::make_unique<File>(range));
}

FileTexts::~FileTexts() = default;

std::size_t FileTexts::size() const { return files_.size(); }
std::uint64_t FileTexts::num_bytes(std::size_t text) const { return files_[text]->size(); }

void FileTexts::read(std::size_t text, std::uint64_t at, std::uint8_t* into, std::size_t size) {
    files_[text]->read(at, into, size);
}

void FileTexts::finished(std::size_t text, std::uint64_t num_bytes) { files_[text]->finished(num_bytes); }

}  // namespace gristmill
