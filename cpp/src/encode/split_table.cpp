#include "encode/split_table.hpp"

namespace gristmill {

SplitTable::SplitTable(const VocabularyParts& parts, const TokenTable& tokens)
    : inside_(65536 / 64), tokens_of_two_(65536 / 64), inside_of_three_((std::size_t{1} << kHashBits) / 64) {
    for (const MergeRule& merge : parts.merges) add(tokens.bytes(merge.made));
    if (parts.whole_pieces) {
        for (const IdOfBytes& token : parts.others) add(token.bytes);
    }
}

void SplitTable::add(std::string_view token) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(token.data());
    for (std::size_t i = 0; i + 1 < token.size(); ++i) set(inside_, std::size_t{bytes[i]} << 8 | bytes[i + 1]);
    for (std::size_t i = 0; i + 2 < token.size(); ++i) set(inside_of_three_, hash_three(bytes + i));
    if (token.size() == 2) set(tokens_of_two_, std::size_t{bytes[0]} << 8 | bytes[1]);
}

}  // namespace gristmill
