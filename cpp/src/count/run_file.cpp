#include "count/run_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "gristmill/errors.hpp"
#include "table_size.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kWriteBuffer = first_size(256 << 10, 100);

// A record: this head, then the bytes of a long word. Runs are exchanged as little-endian, the order of all our
// targets.
static_assert(std::endian::native == std::endian::little);
struct RecordHead {
    std::uint64_t low, high, count, first;
};

std::size_t read_at(int descriptor, std::uint8_t* to, std::size_t size, std::uint64_t offset, const std::string& name) {
    for (;;) {
        const ssize_t got = ::pread(descriptor, to, size, static_cast<off_t>(offset));
        if (got >= 0) return static_cast<std::size_t>(got);
        if (errno != EINTR) throw FileError(errno, name);
    }
}

// Creates a file that never has a name, where the file system can: a process killed between the two steps of the other
// way leaves a file.
int create_unnamed(const std::string& folder) {
#ifdef O_TMPFILE
    const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (unnamed >= 0) return unnamed;
#endif
    std::string path = folder + "/gristmill-XXXXXX";
    const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor >= 0) ::unlink(path.c_str());
    return descriptor;
}

}  // namespace

SpillFile::SpillFile(const std::string& folder) : folder_(folder) {
    descriptor_ = create_unnamed(folder);
    if (descriptor_ < 0) throw FileError(errno, folder_);
}

SpillFile::~SpillFile() { ::close(descriptor_); }

void SpillFile::append(std::string_view data) {
    for (std::size_t done = 0; done < data.size();) {
        const ssize_t wrote =
            ::pwrite(descriptor_, data.data() + done, data.size() - done, static_cast<off_t>(size_ + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) throw FileError(errno, folder_);
        done += static_cast<std::size_t>(wrote);
    }
    size_ += data.size();
}

std::size_t SpillFile::read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const {
    const std::size_t got = read_at(descriptor_, to, size, offset, folder_);
    if (got == 0) throw FileError(EIO, folder_);  // the file is shorter than what was written
    return got;
}

// NFS reports a failed write when a descriptor is closed, even a duplicate.
void SpillFile::check_writes() const {
    const int copy = ::dup(descriptor_);
    if (copy < 0 || ::close(copy) != 0) throw FileError(errno, folder_);
}

NamedFile::NamedFile(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw FileError(errno, path_);
}

NamedFile::~NamedFile() { ::close(descriptor_); }

std::size_t NamedFile::read(std::uint8_t* to, std::size_t size, std::uint64_t offset) const {
    return read_at(descriptor_, to, size, offset, path_);
}

RecordWriter::RecordWriter(Write write) : write_(std::move(write)), buffer_(kWriteBuffer) {}

void RecordWriter::write(const CountedWord& word) {
    const RecordHead head{word.is_long() ? 0 : word.low, word.high, word.count, word.first};
    append(&head, sizeof head);
    if (word.is_long()) append(word.long_bytes(), word.size());
}

void RecordWriter::append(const void* data, std::size_t size) {
    if (size_ + size > kWriteBuffer) flush();
    if (size > kWriteBuffer) return write_({static_cast<const char*>(data), size});
    std::memcpy(buffer_.data() + size_, data, size);
    size_ += size;
}

void RecordWriter::flush() {
    if (size_) write_({reinterpret_cast<const char*>(buffer_.data()), size_});
    size_ = 0;
}

RunWriter::RunWriter(std::shared_ptr<SpillFile> file)
    : file_(std::move(file)),
      begin_(file_->size()),
      records_([target = file_.get()](std::string_view data) { target->append(data); }) {}

Run RunWriter::finish() {
    records_.flush();
    file_->check_writes();
    return {.file = file_, .begin = begin_, .end = file_->size(), .name = {}};
}

PartitionWriter::PartitionWriter(std::size_t num_partitions, const Write& write)
    : num_partitions_(num_partitions), records_([this, write](std::string_view data) {
          checksum_.update(data);
          entry_.end += data.size();
          write(data);
      }) {}

void PartitionWriter::write(const CountedWord& word, std::size_t partition) {
    while (entries_.size() < partition) end_partition();
    ++entry_.num_words;
    entry_.num_bytes += word.size();
    records_.write(word);
}

std::vector<RunEntry> PartitionWriter::finish() {
    while (entries_.size() < num_partitions_) end_partition();
    return std::move(entries_);
}

void PartitionWriter::end_partition() {
    records_.flush();
    entry_.checksum = checksum_.digest();
    entries_.push_back(entry_);
    entry_ = {.end = entry_.end};
    checksum_ = Xxh64();
}

RunReader::RunReader(Run run, std::size_t buffer_bytes) : run_(std::move(run)), buffer_(buffer_bytes) {}

// Makes `wanted` bytes from begin_ readable; returns false if the run ends before the first of them.
bool RunReader::fill(std::size_t wanted) {
    if (end_ - begin_ >= wanted) return true;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == 0 && run_.begin == run_.end) {
        if (!run_.name.empty() && checksum_.digest() != run_.checksum) fail("its checksum does not fit");
        return false;
    }
    if (wanted - end_ > run_.end - run_.begin) fail("it ends inside a word");
    if (wanted > buffer_.size()) buffer_.resize(wanted);
    while (end_ < wanted) read_more();
    return true;
}

void RunReader::read_more() {
    const std::uint64_t size = std::min<std::uint64_t>(buffer_.size() - end_, run_.end - run_.begin);
    const std::size_t got = run_.file->read(buffer_.data() + end_, size, run_.begin);
    if (got == 0) fail("it is cut short");
    if (!run_.name.empty()) checksum_.update({reinterpret_cast<const char*>(buffer_.data()) + end_, got});
    end_ += got;
    run_.begin += got;
}

void RunReader::fail(const char* how) const {
    if (run_.name.empty()) throw std::logic_error("a run written by this process cannot be read back");
    throw DamagedRun(run_.name, how);
}

bool RunReader::next() {
    RecordHead head;
    if (!fill(sizeof head)) return false;
    std::memcpy(&head, buffer_.data() + begin_, sizeof head);
    begin_ += sizeof head;
    word_ = {head.low, head.high, head.count, head.first + run_.base};
    // Check before use: the checksum is compared only at the end of the run.
    const std::size_t size = word_.size();
    const bool is_short = word_.high == 0;
    if (size == 0 || (is_short && size > 7) || (!is_short && size < 8) || (!is_short && !word_.is_long() && size > 15))
        fail("it has a word with an invalid length");
    if (!word_.is_long()) return true;
    if (!fill(word_.size())) fail("it ends inside a word");
    word_.set_long_bytes(buffer_.data() + begin_);
    begin_ += word_.size();
    return true;
}

}  // namespace gristmill
