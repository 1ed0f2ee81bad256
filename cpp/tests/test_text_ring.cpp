// The ring of texts that are read ahead, against the texts themselves.
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "gristmill/errors.hpp"
#include "gristmill/text_ring.hpp"

namespace {

namespace gm = gristmill;

std::string joined(const std::vector<std::string>& texts) {
    std::string stream;
    for (const std::string& text : texts) stream += text + '\xFF';
    return stream;
}

struct Read {
    std::string stream;
    std::vector<std::uint64_t> gaps;
};

Read read_all(gm::Texts& texts, std::size_t num_slots, std::size_t slot_bytes, unsigned num_readers,
              std::size_t most_taken) {
    std::vector<std::uint8_t> memory(num_slots * slot_bytes);
    gm::TextRing ring(texts, memory, slot_bytes, num_readers);
    gm::Monitor monitor;
    Read result;
    std::size_t num_taken = 0;
    for (;;) {
        const gm::TextRing::Slot slot = ring.next(monitor);
        if (slot.size == 0) break;
        for (const std::uint32_t gap : slot.gaps) result.gaps.push_back(result.stream.size() + gap);
        result.stream.append(reinterpret_cast<const char*>(memory.data()) + slot.begin, slot.size);
        if (++num_taken == most_taken) ring.release(), --num_taken;
    }
    CHECK(result.stream.size() == ring.num_bytes());
    return result;
}

// Fails at one text.
class FailingTexts final : public gm::Texts {
  public:
    std::size_t size() const override { return 50; }
    std::uint64_t num_bytes(std::size_t) const override { return 100; }
    View view(std::size_t) const override { return {nullptr, 0}; }
    void read(std::size_t text, std::uint64_t, std::uint8_t* into, std::size_t size) override {
        if (text >= 20) throw gm::InputChanged(std::to_string(text), "a test changed it");
        std::fill(into, into + size, 'a');
    }
};

}  // namespace

int main() {
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
        std::vector<std::string> texts(random() % 20);
        for (std::string& text : texts) text.assign(random() % 4 ? random() % 50 : 0, static_cast<char>('a' + i % 26));
        gm::ViewTexts views({texts.begin(), texts.end()});
        const std::size_t num_slots = 1 + random() % 5;
        const Read read = read_all(views, num_slots, 1 + random() % 40, 1 + random() % 4, 1 + random() % num_slots);
        CHECK(read.stream == joined(texts));
        CHECK(read.gaps.size() == texts.size());
        std::size_t end = 0;
        for (std::size_t t = 0; t < texts.size() && t < read.gaps.size(); ++t, ++end)
            CHECK(read.gaps[t] == (end += texts[t].size()));
    }
    // The error of the earliest text that cannot be read, after all texts before it.
    for (int i = 0; i < 20; ++i) {
        FailingTexts texts;
        std::vector<std::uint8_t> memory(7 * 64);
        gm::TextRing ring(texts, memory, 64, 4);
        gm::Monitor monitor;
        std::size_t num_bytes = 0;
        try {
            for (;;) {
                num_bytes += ring.next(monitor).size;
                ring.release();
            }
        } catch (const gm::InputChanged& error) {
            CHECK(std::string(error.what()).find("20") != std::string::npos);
        }
        CHECK(num_bytes == 20 * 101 / 64 * 64);
    }
    // A ring that is destroyed while its readers wait, and a cancelled wait.
    std::vector<std::string> many(1000, "some text");
    gm::ViewTexts views({many.begin(), many.end()});
    std::vector<std::uint8_t> memory(256);
    {
        gm::TextRing ring(views, memory, 64, 3);
    }
    bool is_refused = false;
    try {
        gm::TextRing ring(views, {}, 64, 3);
    } catch (const std::invalid_argument&) {
        is_refused = true;
    }
    CHECK(is_refused);
    return test_result();
}
