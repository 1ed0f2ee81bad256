// Joins the ids of blocks that several threads encode at the same time, in the order of the blocks.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gristmill/ids.hpp"

namespace gristmill {

// The thread with the next block in order writes directly to the result. A thread that is ahead writes to its own
// buffer, which is copied when its position is known. With one thread nothing is ever copied.
template <class Token>
class OrderedOutput {
  public:
    explicit OrderedOutput(std::size_t capacity) : ids_(capacity, sizeof(Token)) {}

    // Memory for the ids of a block. Reused for later blocks, because fresh memory costs a page fault per 4 KB.
    struct Buffer {
        std::unique_ptr<Token[]> ids;
        std::size_t capacity = 0;
    };
    // The ids of one block in progress.
    struct Segment {
        std::size_t index;
        Token* out;
        Buffer buffer;  // empty if `out` is in the result
    };
    Segment begin(std::size_t index, std::size_t capacity) {
        Buffer buffer;
        {
            const std::lock_guard lock(mutex_);
            if (index == next_) return {index, ids_.template data<Token>() + size_, {}};
            if (!free_.empty()) {
                buffer = std::move(free_.back());
                free_.pop_back();
            }
        }
        if (buffer.capacity < capacity) buffer = {std::unique_ptr<Token[]>(new Token[capacity]), capacity};
        Token* out = buffer.ids.get();
        return {index, out, std::move(buffer)};
    }
    void end(Segment block, std::size_t num_ids) {
        std::vector<Placed> placed;  // blocks whose position is now known
        {
            const std::lock_guard lock(mutex_);
            waiting_.emplace(block.index, Waiting{std::move(block.buffer), num_ids});
            for (auto at = waiting_.begin(); at != waiting_.end() && at->first == next_; at = waiting_.erase(at)) {
                placed.push_back({std::move(at->second), size_});
                size_ += placed.back().block.num_ids;
                ++next_;
            }
        }
        for (auto& [waiting, offset] : placed) {
            const Token* from = waiting.buffer.ids.get();
            if (!from) continue;
            std::memcpy(ids_.template data<Token>() + offset, from, waiting.num_ids * sizeof(Token));
            const std::lock_guard lock(mutex_);
            free_.push_back(std::move(waiting.buffer));
        }
    }
    // Call this when all blocks have ended.
    IdBuffer finish() {
        ids_.finish(size_);
        return std::move(ids_);
    }

  private:
    struct Waiting {
        Buffer buffer;
        std::size_t num_ids;
    };
    struct Placed {
        Waiting block;
        std::size_t offset;
    };

    std::mutex mutex_;
    std::size_t next_ = 0;  // the first block without a known end
    std::size_t size_ = 0;  // number of ids before it
    std::map<std::size_t, Waiting> waiting_;
    std::vector<Buffer> free_;
    IdBuffer ids_;
};

}  // namespace gristmill
