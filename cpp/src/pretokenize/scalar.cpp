#include "pretokenize/scalar.hpp"

#include <stdexcept>

#include "pretokenize/specification.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kBatchEnds = 1024;
constexpr std::size_t kMaxOffset = 0xFFFF;

template <class Family>
class ScalarScanner final : public BoundaryScanner {
  public:
    ScalarScanner() { ends_ = buffer_; }

    void start(const std::uint8_t* text, std::size_t size) override {
        text_ = {text, size};
        end_ = 0;
        size_ = 0;
    }

    bool next() override {
        size_ = 0;
        if (end_ == text_.size) return false;
        // The first piece may be too long for a 16-bit offset: the batch begins where that piece ends.
        const std::size_t first = end_ = piece_end(Family{}, text_, end_);
        buffer_[size_++] = 0;
        while (size_ < kBatchEnds && end_ < text_.size) {
            const std::size_t end = piece_end(Family{}, text_, end_);
            if (end - first > kMaxOffset) break;
            buffer_[size_++] = static_cast<std::uint16_t>(end - first);
            end_ = end;
        }
        base_ = text_.data + first;
        return true;
    }

    std::size_t append(const std::uint8_t* text, std::size_t size, std::uint16_t offset, std::uint16_t* out) override {
        std::size_t num_ends = 0;
        for (std::size_t end = 0; end < size;) {
            end = piece_end(Family{}, {text, size}, end);
            out[num_ends++] = static_cast<std::uint16_t>(offset + end);
        }
        return num_ends;
    }

  private:
    Text text_{nullptr, 0};
    std::size_t end_ = 0;  // end of the last piece delivered
    std::uint16_t buffer_[kBatchEnds + 64] = {};
};

}  // namespace

std::unique_ptr<BoundaryScanner> make_scalar_scanner(Pattern pattern) {
    switch (pattern) {
#define GRISTMILL_PATTERN(name, ...) \
    case Pattern::name:              \
        return std::make_unique<ScalarScanner<__VA_ARGS__>>();
        GRISTMILL_PATTERNS(GRISTMILL_PATTERN)
#undef GRISTMILL_PATTERN
    }
    throw std::invalid_argument("make_scanner: no such pattern");
}

}  // namespace gristmill
