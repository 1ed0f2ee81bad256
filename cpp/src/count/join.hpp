// Joins the private tables of the counting threads into one word table, on all threads.
#pragma once

#include <memory>
#include <vector>

#include "count/piece_table.hpp"
#include "crew.hpp"
#include "gristmill/count.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// Words counted fewer than `min_frequency` times are left out; `num_words` is the number before that. The tables are
// freed.
WordTable join_tables(std::vector<std::unique_ptr<PieceTable>> tables, std::uint64_t min_frequency, Crew& crew,
                      std::uint64_t& num_words, Monitor& monitor);

}  // namespace gristmill
