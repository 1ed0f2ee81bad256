#include "driver/window.hpp"

#include <algorithm>
#include <cstring>

namespace gristmill {
namespace {

// How far after the end of a block the first search for a cut reads. Real text has a cut within a few bytes.
constexpr std::uint64_t kLookAhead = 4096;
// A larger buffer, grown for a stretch without a cut, is freed instead of kept for the rest of the corpus.
constexpr std::size_t kKeptCapacity = 4 << 20;
// Bytes searched or read between two checks of the monitor.
constexpr std::uint64_t kStepBytes = 1 << 20;

}  // namespace

void Window::open(Texts& texts, std::size_t text, std::uint64_t from) {
    texts_ = &texts;
    text_ = text;
    text_bytes_ = texts.num_bytes(text);
    const Texts::View view = texts.view(text);
    if (view.data) {
        data_ = view.data;
        begin_ = 0;
        size_ = static_cast<std::size_t>(text_bytes_);
        readable_ = view.readable;
        return;
    }
    if (capacity_ > kKeptCapacity) {
        buffer_.reset();
        capacity_ = 0;
    }
    data_ = buffer_.get();
    begin_ = from;
    size_ = 0;
}

void Window::extend(std::uint64_t to) {
    to = std::min(to, text_bytes_);
    if (to <= end()) return;
    const auto wanted = static_cast<std::size_t>(to - begin_);
    if (wanted + kTextPadding > capacity_) {
        const std::size_t larger = std::max(wanted + kTextPadding, size_ ? 2 * capacity_ : 0);
        std::unique_ptr<std::uint8_t[]> buffer(new std::uint8_t[larger]);
        if (size_) std::memcpy(buffer.get(), buffer_.get(), size_);
        buffer_ = std::move(buffer);
        capacity_ = larger;
    }
    texts_->read(text_, end(), buffer_.get() + size_, wanted - size_);
    std::memset(buffer_.get() + wanted, 0, kTextPadding);
    data_ = buffer_.get();
    size_ = wanted;
    readable_ = wanted + kTextPadding;
}

// The first cut in [from, limit), or `limit`.
std::uint64_t Window::first_cut(std::uint64_t from, std::uint64_t limit, const Cutter& cutter, const Monitor& monitor) {
    while (from < limit) {
        // Doubles the distance each time, so that a text without cuts is read and copied in linear time.
        if (end() < std::min(from + cutter.reach() + 1, text_bytes_))
            extend(std::max(end() + kLookAhead + cutter.reach(), begin_ + 2 * size_));
        const std::uint64_t certain = end() == text_bytes_ ? end() : end() - cutter.reach();
        const std::uint64_t to = std::min({limit, certain, from + kStepBytes});
        const std::size_t found =
            cutter.first(data_, size_, static_cast<std::size_t>(from - begin_), static_cast<std::size_t>(to - begin_));
        if (found != kNoCut) return begin_ + found;
        from = to;
        monitor.check();
    }
    return limit;
}

Stretch Window::load(Texts& texts, std::size_t text, std::uint64_t begin, std::uint64_t end, const Cutter& cutter,
                     const Monitor& monitor) {
    open(texts, text, begin > cutter.reach() ? begin - cutter.reach() : 0);
    extend(end < text_bytes_ ? end + kLookAhead : end);
    const std::uint64_t from = begin == 0 ? 0 : first_cut(begin, end, cutter, monitor);
    if (from == end) return {data_, 0, 0, end};
    const std::uint64_t to = first_cut(end, text_bytes_, cutter, monitor);
    const auto offset = static_cast<std::size_t>(from - begin_);
    return {data_ + offset, static_cast<std::size_t>(to - from), readable_ - offset, from};
}

}  // namespace gristmill
