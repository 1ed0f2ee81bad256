#include "gristmill/encode.hpp"

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::string_view known_token(const Encoder& encoder, std::uint64_t id) {
    const std::string_view token = id <= 0xffffffffu ? encoder.token_bytes(static_cast<Id>(id)) : std::string_view();
    if (token.empty()) throw nb::key_error(std::to_string(id).c_str());
    return token;
}

nb::bytes decode_bytes(const Encoder& encoder, const InputArray<std::uint32_t>& ids) {
    std::string bytes;
    for (std::size_t i = 0; i < ids.size(); ++i) bytes += known_token(encoder, ids.data()[i]);
    return to_bytes(bytes);
}

}  // namespace

void register_encode(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Encoder>(m, "Encoder")
        .def(
            "__init__",
            [](Encoder* self, const InputMerges& merges, const std::optional<std::string>& pattern,
               const nb::sequence& special_tokens, const std::vector<Id>& special_ids) {
                std::optional<Pattern> native;
                if (pattern) native = parse_pattern(*pattern);
                new (self) Encoder(parse_merges(merges), native, default_kernel(), parse_specials(special_tokens),
                                   special_ids);
            },
            "merges"_a, "pattern"_a.none(), "special_tokens"_a = nb::make_tuple(), "special_ids"_a = std::vector<Id>())
        .def(
            "encode",
            [](const Encoder& self, const nb::bytes& text, const std::vector<Id>& allowed_special) {
                std::vector<Id> ids;
                {
                    const nb::gil_scoped_release release;
                    self.encode(view(text), allowed_special, ids);
                }
                return to_array(std::move(ids));
            },
            "text"_a, "allowed_special"_a = std::vector<Id>())
        .def(
            "encode_piece",
            [](const Encoder& self, const nb::bytes& piece) {
                std::vector<Id> ids;
                {
                    const nb::gil_scoped_release release;
                    self.encode_piece(view(piece), ids);
                }
                return to_array(std::move(ids));
            },
            "piece"_a)
        .def(
            "find_special",
            [](const Encoder& self, const nb::bytes& text, const std::vector<Id>& special_ids) -> nb::object {
                const auto found = self.find_special(view(text), special_ids);
                if (!found) return nb::none();
                return nb::make_tuple(found->position, found->id);
            },
            "text"_a, "special_ids"_a)
        .def("decode_bytes", &decode_bytes, "ids"_a)
        .def(
            "token_bytes", [](const Encoder& self, std::uint64_t id) { return to_bytes(known_token(self, id)); },
            "id"_a);
}

}  // namespace gristmill::bindings
