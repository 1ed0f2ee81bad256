// The native module, in pipeline order.
#include "bindings.hpp"

NB_MODULE(_core, m) {
    using namespace gristmill::bindings;
    m.doc() = "The native core: corpus bytes -> words -> merges -> ids.";
    register_errors(m);
    register_pretokenize(m);
    register_words(m);
    register_count(m);
    register_merge(m);
    register_encode(m);
}
