// The native module, in pipeline order.
#include "bindings.hpp"

NB_MODULE(_core, m) {
    using namespace gristmill::bindings;
    // A tokenizer that is alive when the interpreter exits is not a leak that users need to know about.
    nb::set_leak_warnings(false);
    m.doc() = "The native core: corpus bytes -> words -> merges -> ids.";
    register_errors(m);
    register_spans(m);
    register_json_lines(m);
    register_text_ring(m);
    register_pretokenize(m);
    register_words(m);
    register_count(m);
    register_merge(m);
    register_vocabulary(m);
    register_encode(m);
    register_trace(m);
}
