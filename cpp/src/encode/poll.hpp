// Checks the monitor once per several thousand steps of a loop over a long piece.
#pragma once

#include <cstddef>

#include "gristmill/monitor.hpp"

namespace gristmill {

class Poll {
  public:
    // Does nothing without a monitor.
    explicit Poll(const Monitor* monitor) : monitor_(monitor) {}
    // Throws what Monitor::check() throws.
    void operator()() const {
        if (++steps_ % kInterval == 0 && monitor_) monitor_->check();
    }

  private:
    static constexpr std::size_t kInterval = 4096;
    const Monitor* monitor_;
    mutable std::size_t steps_ = 0;
};

}  // namespace gristmill
