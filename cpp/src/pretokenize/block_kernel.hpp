// The main loop of a SIMD kernel, for any instruction set (block_classes.hpp) and any pattern (block_rules.hpp).
#pragma once

#include "pretokenize/block_classes.hpp"
#include "pretokenize/block_rules_o200k.hpp"

namespace gristmill {
namespace {

// Joins each apostrophe that begins a piece with the contraction after it. A contraction always ends a piece.
template <class Rules>
inline Mask join_contractions(const std::uint8_t* text, Mask apostrophes, Mask begins, Carry& carry) {
    if (Rules::kContractions == Contractions::none) return begins;
    begins = (begins & carry.keep_bits) | carry.set_bits;
    carry.keep_bits = ~Mask{0};
    carry.set_bits = 0;
    for (Mask candidates = apostrophes & begins; candidates != 0; candidates &= candidates - 1) {
        const unsigned i = __builtin_ctzll(candidates);
        const unsigned size = contraction_at<Rules::kContractions == Contractions::any_case>(text + i);
        if (size == 0) continue;
        (i + 1 < 64 ? begins : carry.keep_bits) &= ~(Mask{1} << ((i + 1) & 63));
        (i + size < 64 ? begins : carry.set_bits) |= Mask{1} << ((i + size) & 63);
    }
    return begins;
}

template <class Simd, class Rules>
void start_scan(BlockScan& scan, const std::uint8_t* text, std::size_t size) {
    scan.text = text;
    scan.size = size;
    scan.position = 0;
    // At least one whole block, if there is one, is read from the tail: a block before it may read 3 bytes past its own
    // end.
    scan.tail_begin = size < kBlockBytes ? 0 : size / kBlockBytes * kBlockBytes - kBlockBytes;
    __builtin_memset(scan.tail, Rules::kFiller, sizeof scan.tail);
    if (size != 0) __builtin_memcpy(scan.tail, text + scan.tail_begin, size - scan.tail_begin);
    scan.covered = 0;
    scan.carry = {};
    scan.carry.keep_bits = ~Mask{0};
    static_cast<typename Rules::BlockType&>(scan.block) =
        classify<Simd, typename Rules::BlockType>(block_bytes(scan, 0), scan.covered);
}

// The bytes of the block that begin a piece.
template <class Simd, class Rules, class BlockType = typename Rules::BlockType>
inline Mask piece_begins(const BlockScan& scan, const BlockType& block, const BlockType& next, Carry& carry) {
    Mask begins;
    if (block.starts == ~Mask{0}) {
        BlockType ascii = block;
        ascii.num_chars = 64;  // a constant simplifies half of the shifts
        begins = Rules::begins(scan, ascii, next, carry);
    } else {
        begins = typename Simd::Packing{block.starts}.unpack(Rules::begins(scan, block, next, carry));
    }
    return join_contractions<Rules>(block_bytes(scan, scan.position), block.apostrophes, begins, carry);
}

template <class Simd, class Rules>
std::size_t scan_batch(BlockScan& scan, std::uint16_t* ends, std::uint16_t offset) {
    const std::size_t end = scan.position + kBatchBytes, base = scan.position - offset;
    std::uint16_t* out = ends;
    using BlockType = typename Rules::BlockType;
    BlockType block = scan.block;
    Carry carry = scan.carry;
    std::uint64_t covered = scan.covered;
    while (scan.position < scan.size && scan.position < end) {
        const BlockType next =
            classify<Simd, typename Rules::BlockType>(block_bytes(scan, scan.position + kBlockBytes), covered);
        Mask begins = piece_begins<Simd, Rules>(scan, block, next, carry);
        if (scan.position == 0) begins &= ~Mask{1};  // the first piece does not end another
        const std::size_t left = scan.size - scan.position;
        if (left < kBlockBytes) begins &= (Mask{1} << left) - 1;
        out = Simd::write(begins, static_cast<std::uint16_t>(scan.position - base), out);
        scan.position += kBlockBytes;
        block = next;
    }
    static_cast<BlockType&>(scan.block) = block;
    scan.carry = carry;
    scan.covered = covered;
    if (scan.position >= scan.size) *out++ = static_cast<std::uint16_t>(scan.size - base);
    return static_cast<std::size_t>(out - ends);
}

// Like start and one batch, for a short text. An ASCII text is read in place, without a copy of its end, and the state
// shared between blocks stays in registers: this halves the time for a hundred bytes.
template <class Simd, class Rules>
std::size_t scan_whole(BlockScan& scan, const std::uint8_t* text, std::size_t size, std::uint16_t* ends,
                       std::uint16_t offset) {
    using BlockType = typename Rules::BlockType;
    const auto in_general = [&] {
        start_scan<Simd, Rules>(scan, text, size);
        return scan_batch<Simd, Rules>(scan, ends, offset);
    };
    if constexpr (requires { Simd::load_part(text, size, Rules::kFiller); }) {
        // Contractions are searched in the text itself, where other bytes may follow its end.
        if (size < 3 || text[size - 1] == '\'' || text[size - 2] == '\'' || text[size - 3] == '\'') return in_general();
        auto bytes = Simd::load_part(text, size, Rules::kFiller);
        if (Simd::any_high(bytes)) return in_general();
        BlockType block = ascii_block<BlockType>(Simd::ascii(bytes));
        Carry carry{};
        carry.keep_bits = ~Mask{0};
        scan.text = text;
        scan.size = size;
        scan.tail_begin = ~std::size_t{0};
        std::uint16_t* out = ends;
        for (scan.position = 0; scan.position < size; scan.position += kBlockBytes) {
            const std::size_t left = size - scan.position;
            bytes = Simd::load_part(text + scan.position + kBlockBytes, left > kBlockBytes ? left - kBlockBytes : 0,
                                    Rules::kFiller);
            if (Simd::any_high(bytes)) return in_general();
            const BlockType next = ascii_block<BlockType>(Simd::ascii(bytes));
            Mask begins = join_contractions<Rules>(text + scan.position, block.apostrophes,
                                                   Rules::begins(scan, block, next, carry), carry);
            if (scan.position == 0) begins &= ~Mask{1};
            if (left < kBlockBytes) begins &= (Mask{1} << left) - 1;
            out = Simd::write(begins, static_cast<std::uint16_t>(scan.position + offset), out);
            block = next;
        }
        *out++ = static_cast<std::uint16_t>(size + offset);
        return static_cast<std::size_t>(out - ends);
    } else {
        return in_general();
    }
}

template <class Simd, class Rules>
constexpr BlockKernel block_kernel() {
    return {start_scan<Simd, Rules>, scan_batch<Simd, Rules>, scan_whole<Simd, Rules>};
}

template <class Simd>
constexpr BlockKernels block_kernels() {
#define GRISTMILL_PATTERN(name, ...) block_kernel<Simd, BlockRules<__VA_ARGS__>>(),
    return {{GRISTMILL_PATTERNS(GRISTMILL_PATTERN)}};
#undef GRISTMILL_PATTERN
}

}  // namespace
}  // namespace gristmill
