// Joins the private tables of the counting threads into one word table, on all threads.
#pragma once

#include <memory>
#include <vector>

#include "count/piece_table.hpp"
#include "crew.hpp"
#include "gristmill/count.hpp"
#include "gristmill/monitor.hpp"

namespace gristmill {

// Omits words counted fewer than `min_frequency` times; `num_words` is the number before that. Frees the tables.
WordTable join_tables(std::vector<std::unique_ptr<PieceTable>> tables, std::uint64_t min_frequency, Crew& crew,
                      std::uint64_t& num_words, Monitor& monitor);

}  // namespace gristmill
