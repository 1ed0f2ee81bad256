// Workers that are not in use. One thread at a time takes a worker; its cache stays warm for the next.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "encode/worker.hpp"

namespace gristmill {

// Lock-free: if a process forks while another thread takes a worker, a lock would stay locked in the child forever.
template <class Token>
class WorkerPool {
  public:
    WorkerPool(const EncodeTables& tables, std::size_t cache_bytes)
        : tables_(tables), limit_bytes_(cache_bytes), seeds_(make_seeds(tables, cache_bytes)) {}
    ~WorkerPool() {
        for (auto& slot : idle_) delete slot.load();
    }

    struct GiveBack {
        WorkerPool* pool;
        void operator()(Worker<Token>* worker) const { pool->give_back(worker); }
    };
    using Lease = std::unique_ptr<Worker<Token>, GiveBack>;

    Lease take() {
        for (auto& slot : idle_) {
            if (!slot.load(std::memory_order_relaxed)) continue;
            if (Worker<Token>* worker = slot.exchange(nullptr, std::memory_order_acquire)) return Lease(worker, {this});
        }
        return Lease(new Worker<Token>(tables_, seeds_, limit_bytes_), {this});
    }

    CacheStats stats() const {
        CacheStats stats;
        stats.limit_bytes = limit_bytes_;
        stats.memory_bytes = seeds_.memory_bytes();
        stats.num_pieces = seeds_.size();
        for (auto& slot : idle_) {
            // Removed for a moment, so that no thread uses the worker while it is read.
            Worker<Token>* worker = slot.exchange(nullptr, std::memory_order_acquire);
            if (!worker) continue;
            ++stats.num_caches;
            stats.num_pieces += worker->num_pieces();
            stats.memory_bytes += worker->cache_memory_bytes();
            give_back(worker);
        }
        return stats;
    }

  private:
    void give_back(Worker<Token>* worker) const {
        for (auto& slot : idle_) {
            Worker<Token>* none = nullptr;
            if (slot.compare_exchange_strong(none, worker, std::memory_order_release)) return;
        }
        delete worker;
    }

    const EncodeTables& tables_;
    std::size_t limit_bytes_;
    SeedTable seeds_;
    static constexpr std::size_t kMaxIdle = 64;
    mutable std::array<std::atomic<Worker<Token>*>, kMaxIdle> idle_{};
};

}  // namespace gristmill
