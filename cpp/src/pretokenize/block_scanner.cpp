#include "pretokenize/block_scanner.hpp"

namespace gristmill {
namespace {

class BlockScanner final : public BoundaryScanner {
  public:
    explicit BlockScanner(const BlockKernel& kernel) : kernel_(kernel) { ends_ = buffer_; }

    void start(const std::uint8_t* text, std::size_t size) override {
        kernel_.start(scan_, text, size);
        size_ = 0;
    }

    bool next() override {
        size_ = 0;
        if (scan_.position >= scan_.size) return false;
        base_ = scan_.text + scan_.position;
        size_ = kernel_.batch(scan_, buffer_, 0);
        return true;
    }

    std::size_t append(const std::uint8_t* text, std::size_t size, std::uint16_t offset, std::uint16_t* out) override {
        static_assert(kMaxAppended <= kBatchBytes, "one batch holds the whole text");
        if (!size) return 0;
        return kernel_.whole(scan_, text, size, out, offset);
    }

  private:
    const BlockKernel& kernel_;
    BlockScan scan_{};
    // One end per byte, the end of the text, and 64 more readable values.
    alignas(64) std::uint16_t buffer_[kBatchBytes + 128] = {};
};

}  // namespace

std::unique_ptr<BoundaryScanner> make_block_scanner(const BlockKernel& kernel) {
    return std::make_unique<BlockScanner>(kernel);
}

}  // namespace gristmill
