// MovePacking against PlainPacking, which works bit by bit. The kernels' tests cover PextPacking, which needs BMI2.
#include <random>

#include "check.hpp"
#include "pretokenize/bit_packing.hpp"

using namespace gristmill;

namespace {

void check_packing(Mask where, Mask mask) {
    const PlainPacking plain{where};
    const MovePacking moves(where);
    CHECK(moves.pack(mask) == plain.pack(mask));
    CHECK(moves.unpack(mask) == plain.unpack(mask));
    CHECK(moves.unpack(moves.pack(mask)) == (mask & where));
}

void test_masks_of_every_density_are_packed_and_unpacked() {
    std::mt19937_64 random(1);
    for (int round = 0; round < 100'000; ++round) {
        Mask where = random();
        for (unsigned i = 0; i < round % 5u; ++i) where = round % 2 ? where & random() : where | random();
        check_packing(where, random());
    }
}

// A run of dropped bits at any position, of any length: 0 and 64 of them, and every distance a bit can move.
void test_every_run_of_dropped_bits() {
    std::mt19937_64 random(2);
    for (unsigned begin = 0; begin < 64; ++begin) {
        for (unsigned end = begin; end <= 64; ++end) {
            const Mask dropped = (end == 64 ? 0 : Mask{1} << end) - (Mask{1} << begin);
            for (const Mask mask : {~Mask{0}, Mask{random()}}) {
                check_packing(~dropped, mask);
                check_packing(dropped, mask);
            }
        }
    }
}

void test_code_points_of_all_valid_sequences() {
    std::uint8_t bytes[7] = {};
    std::size_t num_valid = 0;
    for (unsigned word = 0; word < 1u << 24; ++word) {
        // Leads 0xC0 to 0xFF; six bits of each continuation byte.
        bytes[0] = static_cast<std::uint8_t>(0xC0 | word >> 18);
        bytes[1] = static_cast<std::uint8_t>(0x80 | (word >> 12 & 0x3F));
        bytes[2] = static_cast<std::uint8_t>(0x80 | (word >> 6 & 0x3F));
        bytes[3] = static_cast<std::uint8_t>(0x80 | (word & 0x3F));
        const std::uint8_t size = sequence_size(bytes, 4);
        // The bytes after a sequence do not matter: one value per sequence is enough.
        if (size == 0 || (word & ((1u << 6 * (4 - size)) - 1)) != (0x2AAAAu & ((1u << 6 * (4 - size)) - 1))) continue;
        CHECK(MovePacking::code_point(bytes) == PlainPacking::code_point(bytes));
        ++num_valid;
    }
    CHECK(num_valid == 0x110000 - 0x80 - 0x800);  // all but ASCII and surrogates
}

}  // namespace

int main() {
    test_masks_of_every_density_are_packed_and_unpacked();
    test_every_run_of_dropped_bits();
    test_code_points_of_all_valid_sequences();
    return test_result();
}
