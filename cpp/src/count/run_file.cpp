#include "count/run_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "gristmill/errors.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kWriteBuffer = 256 << 10;

// A record: this, then the bytes of a long word.
struct RecordHead {
    std::uint64_t low, high, count, first;
};

}  // namespace

RunWriter::RunWriter(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) throw FileError(errno, path_);
    buffer_.reserve(kWriteBuffer);
}

RunWriter::~RunWriter() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void RunWriter::write(const CountedWord& word) {
    const RecordHead head{word.is_long() ? 0 : word.low, word.high, word.count, word.first};
    append(&head, sizeof head);
    if (word.is_long()) append(word.long_bytes(), word.size());
}

void RunWriter::append(const void* data, std::size_t size) {
    if (buffer_.size() + size > kWriteBuffer) flush();
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + size);
}

void RunWriter::flush() {
    for (std::size_t done = 0; done < buffer_.size();) {
        const ssize_t wrote = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) throw FileError(errno, path_);
        done += static_cast<std::size_t>(wrote);
    }
    buffer_.clear();
}

void RunWriter::finish() {
    flush();
    if (::close(std::exchange(descriptor_, -1)) != 0) throw FileError(errno, path_);
}

RunReader::RunReader(std::string path, std::size_t buffer_bytes)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), buffer_(buffer_bytes) {
    if (descriptor_ < 0) throw FileError(errno, path_);
}

RunReader::~RunReader() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

// Makes `wanted` bytes from begin_ readable; false if the file ends before the first of them.
bool RunReader::fill(std::size_t wanted) {
    if (end_ - begin_ >= wanted) return true;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (wanted > buffer_.size()) buffer_.resize(wanted);
    while (end_ < wanted) {
        const ssize_t got = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw FileError(errno, path_);
        if (got == 0 && end_ == 0) return false;
        if (got == 0) throw FileError(EIO, path_);  // a run of ours ends between records, or somebody cut it
        end_ += static_cast<std::size_t>(got);
    }
    return true;
}

bool RunReader::next() {
    RecordHead head;
    if (!fill(sizeof head)) return false;
    std::memcpy(&head, buffer_.data() + begin_, sizeof head);
    begin_ += sizeof head;
    word_ = {head.low, head.high, head.count, head.first};
    if (!word_.is_long()) return true;
    if (!fill(word_.size())) throw FileError(EIO, path_);
    word_.set_long_bytes(buffer_.data() + begin_);
    begin_ += word_.size();
    return true;
}

}  // namespace gristmill
