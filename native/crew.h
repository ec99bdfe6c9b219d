// A trace decoded by several threads. The text is cut where an event seems to begin; each part is decoded on its own and
// joins the whole, in the order of the text, only where all before it ended just there. Where it did not (the end of the
// array, a damaged record, a brace inside of a text), the parts are thrown away and one thread reads on from where the
// whole stands: what comes out is the same with any number of threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "decode.h"

namespace timesink {

class Crew {
public:
    // One per core of this process, at most eight, and no more than POLARS_MAX_THREADS.
    static size_t usual_threads();
    // `threads` counts the one that feeds, which decodes too while it waits.
    Crew(Decoder& whole, size_t threads, size_t part_bytes);
    ~Crew();
    void feed(const char* bytes, size_t size);
    // Whatever was fed has come to the whole.
    void drain();

private:
    struct Part {
        explicit Part(size_t text_budget_bytes) : decoder(text_budget_bytes) {}
        Decoder decoder;
        std::vector<uint32_t> codes;  // of its texts in the whole
        bool is_done = false;
    };
    void start();
    void work();
    void decode_next(std::unique_lock<std::mutex>& lock);
    void wait_for(Part& part);
    void join_first();
    void read_again(Part& part);
    bool may_share() const;

    Decoder& whole_;
    const size_t threads_, part_bytes_;
    std::vector<std::unique_ptr<Part>> parts_;
    std::vector<Part*> idle_;
    std::deque<Part*> coming_;  // in the order of the text
    std::string pending_;       // text behind the last part
    bool apart_ = false;        // the whole holds no text of its own: what follows is in parts and pending
    size_t quarrels_ = 0;

    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable work_, done_;
    std::deque<Part*> waiting_;
    bool stop_ = false;
};

}  // namespace timesink
