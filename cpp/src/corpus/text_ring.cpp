#include "gristmill/text_ring.hpp"

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace gristmill {

TextRing::TextRing(Texts& texts, std::span<std::uint8_t> memory, std::size_t slot_bytes, unsigned num_readers)
    : texts_(texts),
      memory_(memory),
      slot_bytes_(slot_bytes),
      num_places_(slot_bytes ? memory.size() / slot_bytes : 0),
      gaps_(num_places_),
      num_filled_(num_places_) {
    if (num_places_ == 0 || slot_bytes > 0x7fffffff)
        throw std::invalid_argument("the ring needs room for at least one slot of at most 2 GB");
    ends_.reserve(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) ends_.push_back(num_bytes() + texts.num_bytes(i) + 1);
    num_slots_ = (num_bytes() + slot_bytes - 1) / slot_bytes;
    const std::uint64_t num_useful = std::min<std::uint64_t>({num_readers, num_places_, num_slots_});
    readers_.reserve(num_useful);
    try {
        for (std::uint64_t i = 0; i < num_useful; ++i) readers_.emplace_back([this] { read_slots(); });
    } catch (const std::system_error&) {
        // The threads that could be started read everything.
        if (readers_.empty()) throw;
    }
}

TextRing::~TextRing() {
    {
        const std::lock_guard lock(mutex_);
        is_closed_ = true;
    }
    may_read_.notify_all();
    for (std::thread& reader : readers_) reader.join();
}

TextRing::Slot TextRing::next(const Monitor& monitor) {
    std::unique_lock lock(mutex_);
    const std::uint64_t slot = num_taken_;
    if (slot == num_slots_) return {};
    if (slot - num_released_ == num_places_) throw std::logic_error("all slots of the ring are taken");
    const std::size_t place = slot % num_places_;
    while (num_filled_[place] != slot + 1) {
        if (failed_slot_ <= slot) std::rethrow_exception(error_);
        may_take_.wait_for(lock, Monitor::kPollInterval);
        lock.unlock();
        monitor.check();
        lock.lock();
    }
    ++num_taken_;
    const std::uint64_t size = std::min<std::uint64_t>(slot_bytes_, num_bytes() - slot * slot_bytes_);
    return {place * slot_bytes_, static_cast<std::size_t>(size), std::move(gaps_[place])};
}

void TextRing::release() {
    {
        const std::lock_guard lock(mutex_);
        if (num_released_ == num_taken_) throw std::logic_error("no slot of the ring is taken");
        ++num_released_;
    }
    may_read_.notify_one();
}

void TextRing::read_slots() {
    std::unique_lock lock(mutex_);
    for (;;) {
        may_read_.wait(lock, [&] {
            return is_closed_ || failed_slot_ < next_to_read_ || next_to_read_ == num_slots_ ||
                   next_to_read_ - num_released_ < num_places_;
        });
        if (is_closed_ || failed_slot_ < next_to_read_ || next_to_read_ == num_slots_) return;
        const std::uint64_t slot = next_to_read_++;
        lock.unlock();
        std::exception_ptr error;
        try {
            fill(slot);
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        if (!error) {
            num_filled_[slot % num_places_] = slot + 1;
        } else if (slot < failed_slot_) {
            failed_slot_ = slot;
            error_ = error;
            may_read_.notify_all();
        }
        may_take_.notify_one();
        // A release wakes one waiting reader. After the last slot, all others end.
        if (next_to_read_ == num_slots_) may_read_.notify_all();
    }
}

void TextRing::fill(std::uint64_t slot) {
    const std::size_t place = slot % num_places_;
    std::uint8_t* const to = memory_.data() + place * slot_bytes_;
    const std::uint64_t begin = slot * slot_bytes_, end = std::min(begin + slot_bytes_, num_bytes());
    std::vector<std::uint32_t>& gaps = gaps_[place];
    gaps.clear();
    auto text = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (std::uint64_t at = begin; at < end; ++text) {
        const std::uint64_t start = text ? ends_[text - 1] : 0, gap = ends_[text] - 1;
        const auto size = static_cast<std::size_t>(std::min(gap, end) - at);
        if (size || gap == start) {
            if (size) texts_.read(text, at - start, to + (at - begin), size);
            texts_.finished(text, size);
        }
        at += size;
        if (at == end) break;
        to[at - begin] = kGap;
        gaps.push_back(static_cast<std::uint32_t>(at - begin));
        ++at;
    }
}

}  // namespace gristmill
