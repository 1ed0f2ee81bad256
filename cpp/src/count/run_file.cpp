#include "count/run_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
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

SpillFile::SpillFile(const std::string& folder) : folder_(folder) {
    std::string path = folder + "/gristmill-XXXXXX";
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw FileError(errno, folder_);
    ::unlink(path.c_str());
}

SpillFile::~SpillFile() { ::close(descriptor_); }

void SpillFile::append(const std::uint8_t* data, std::size_t size) {
    for (std::size_t done = 0; done < size;) {
        const ssize_t wrote = ::pwrite(descriptor_, data + done, size - done, static_cast<off_t>(size_ + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) throw FileError(errno, folder_);
        done += static_cast<std::size_t>(wrote);
    }
    size_ += size;
}

std::size_t SpillFile::read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const {
    for (;;) {
        const ssize_t got = ::pread(descriptor_, to, size, static_cast<off_t>(offset));
        if (got > 0) return static_cast<std::size_t>(got);
        if (got == 0) throw FileError(EIO, folder_);  // we wrote more than that
        if (errno != EINTR) throw FileError(errno, folder_);
    }
}

// NFS reports a failed write when a descriptor is closed, be it a copy.
void SpillFile::check_writes() const {
    const int copy = ::dup(descriptor_);
    if (copy < 0 || ::close(copy) != 0) throw FileError(errno, folder_);
}

RunWriter::RunWriter(std::shared_ptr<SpillFile> file) : file_(std::move(file)), begin_(file_->size()) {
    buffer_.reserve(kWriteBuffer);
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
    file_->append(buffer_.data(), buffer_.size());
    buffer_.clear();
}

Run RunWriter::finish() {
    flush();
    file_->check_writes();
    return {file_, begin_, file_->size()};
}

RunReader::RunReader(Run run, std::size_t buffer_bytes) : run_(std::move(run)), buffer_(buffer_bytes) {}

// Makes `wanted` bytes from begin_ readable; false if the run ends before the first of them.
bool RunReader::fill(std::size_t wanted) {
    if (end_ - begin_ >= wanted) return true;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == 0 && run_.begin == run_.end) return false;
    if (wanted > buffer_.size()) buffer_.resize(wanted);
    while (end_ < wanted) {
        const std::uint64_t size = std::min<std::uint64_t>(buffer_.size() - end_, run_.end - run_.begin);
        const std::size_t got = run_.file->read(buffer_.data() + end_, size, run_.begin);
        end_ += got;
        run_.begin += got;
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
    if (!fill(word_.size())) throw std::logic_error("a run ends inside a word");
    word_.set_long_bytes(buffer_.data() + begin_);
    begin_ += word_.size();
    return true;
}

}  // namespace gristmill
