#include "corpus/source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gristmill {
namespace {

// How far behind a block's end the first look for a cut goes. Real text has one within a few bytes.
constexpr std::uint64_t kLookAhead = 4096;
// find_cut() looks back at most this far.
constexpr std::uint64_t kCutContext = 4;
// A larger buffer, grown for a stretch without a cut, is not kept for the rest of the corpus.
constexpr std::size_t kKeptCapacity = 4 << 20;

}  // namespace

void MemorySource::read(std::uint64_t at, std::uint8_t* into, std::size_t size) {
    std::memcpy(into, text_.data() + at, size);
}

FileSource::FileSource(std::string path, std::uint64_t block_bytes) : path_(std::move(path)) {
    state_ = state_of(-1, path_);
    blocks_left_ = std::max<std::uint64_t>(1, (state_.size + block_bytes - 1) / block_bytes);
}

FileSource::~FileSource() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

FileSource::State FileSource::state_of(int descriptor, const std::string& path) {
    struct stat status;
    if ((descriptor >= 0 ? ::fstat(descriptor, &status) : ::stat(path.c_str(), &status)) != 0)
        throw FileError(errno, path);
    if (S_ISDIR(status.st_mode)) throw FileError(EISDIR, path);
    if (!S_ISREG(status.st_mode)) throw FileError(ESPIPE, path);  // blocks are read at any place, by any thread
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

void FileSource::open_once() {
    std::call_once(opened_, [this] {
        // Run again by the next thread if it throws: the descriptor of the first attempt is then still open.
        if (descriptor_ < 0) descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor_ < 0) throw FileError(errno, path_);
        check_unchanged();
    });
}

void FileSource::check_unchanged() const {
    const State now = state_of(descriptor_, path_);
    if (now.size != state_.size) {
        throw InputChanged(path_, std::to_string(state_.size) + " bytes became " + std::to_string(now.size));
    }
    if (!(now == state_)) throw InputChanged(path_, "it was written to or replaced");
}

void FileSource::read(std::uint64_t at, std::uint8_t* into, std::size_t size) {
    open_once();
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

void FileSource::block_done() {
    if (blocks_left_.fetch_sub(1) != 1) return;
    open_once();
    check_unchanged();
    std::uint8_t more;
    if (::pread(descriptor_, &more, 1, static_cast<off_t>(state_.size)) > 0)
        throw InputChanged(path_, "it goes on behind its " + std::to_string(state_.size) + " bytes");
    // The name must still lead to the file that was read.
    const State named = state_of(-1, path_);
    if (!(named == state_)) throw InputChanged(path_, "it was replaced by another file");
    ::close(descriptor_);
    descriptor_ = -1;
}

void Window::open(Source& source, std::uint64_t from) {
    source_ = &source;
    begin_ = from;
    size_ = 0;
    if (capacity_ > kKeptCapacity) {
        buffer_.reset();
        capacity_ = 0;
    }
}

void Window::extend(std::uint64_t to) {
    to = std::min(to, source_->size());
    if (to <= end()) return;
    const std::size_t wanted = static_cast<std::size_t>(to - begin_);
    if (wanted + kTextPadding > capacity_) {
        const std::size_t larger = std::max(wanted + kTextPadding, size_ ? 2 * capacity_ : 0);
        std::unique_ptr<std::uint8_t[]> buffer(new std::uint8_t[larger]);
        if (size_) std::memcpy(buffer.get(), buffer_.get(), size_);
        buffer_ = std::move(buffer);
        capacity_ = larger;
    }
    source_->read(end(), buffer_.get() + size_, wanted - size_);
    std::memset(buffer_.get() + wanted, 0, kTextPadding);
    size_ = wanted;
}

namespace {

// The first cut in [from, limit) of the window's source, `limit` if there is none. The window grows as the search goes
// on.
std::uint64_t first_cut(Window& window, std::uint64_t from, std::uint64_t limit, Pattern pattern,
                        const SpecialFinder& specials) {
    while (from < limit) {
        const std::uint64_t seen = std::min(window.end(), limit);
        if (from >= seen) {
            // Twice as far each time: a text without cuts is read and copied in linear time.
            window.extend(std::max(window.end() + kLookAhead, window.begin() + 2 * (window.end() - window.begin())));
            continue;
        }
        const std::size_t found = find_cut(pattern, window.data(), static_cast<std::size_t>(seen - window.begin()),
                                           static_cast<std::size_t>(from - window.begin()));
        if (found == kNoCut) {
            from = seen;
            continue;
        }
        const std::uint64_t cut = window.begin() + found;
        window.extend(cut + specials.span_reach());
        const auto size = static_cast<std::size_t>(window.end() - window.begin());
        if (!specials.may_span(window.data(), size, found)) return cut;
        from = cut + 1;
    }
    return limit;
}

}  // namespace

BlockText load_block(Source& source, std::uint64_t begin, std::uint64_t end, Pattern pattern,
                     const SpecialFinder& specials, Window& window) {
    const std::uint64_t context = std::max<std::uint64_t>(kCutContext, specials.span_reach());
    window.open(source, begin > context ? begin - context : 0);
    window.extend(end < source.size() ? end + kLookAhead : end);
    const std::uint64_t from = begin == 0 ? 0 : first_cut(window, begin, end, pattern, specials);
    if (from == end) return {window.data(), 0, end};
    const std::uint64_t to = first_cut(window, end, source.size(), pattern, specials);
    return {window.at(from), static_cast<std::size_t>(to - from), from};
}

}  // namespace gristmill
