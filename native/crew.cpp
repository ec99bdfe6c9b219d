#include "crew.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace timesink {

namespace {

std::atomic<size_t> decoding_files = 0;  // at once, by several threads each

constexpr size_t MOST_THREADS = 8;
constexpr size_t MOST_QUARRELS = 16;  // a text that is so often cut in the wrong place is read by one thread

// Where the last event of a text seems to begin; 0 where none does.
size_t last_event(const std::string& text) {
    for (size_t at = text.size(); (at = text.rfind('{', at)) != text.npos && at > 0; --at) {
        size_t p = at - 1;
        while (p > 0 && is_space(text[p])) --p;
        if (text[p] != ',' || p == 0) continue;
        --p;
        while (p > 0 && is_space(text[p])) --p;
        if (text[p] == '}') return at;
    }
    return 0;
}

}  // namespace

size_t Crew::usual_threads() {
    size_t cores = std::thread::hardware_concurrency();
#ifdef __linux__
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) == 0) cores = static_cast<size_t>(CPU_COUNT(&own));
#endif
    const char* stated = std::getenv("POLARS_MAX_THREADS");
    const size_t allowed = stated ? std::strtoul(stated, nullptr, 10) : 0;
    return std::clamp<size_t>(allowed ? std::min(cores, allowed) : cores, 1, MOST_THREADS);
}

Crew::Crew(Decoder& whole, size_t threads, size_t part_bytes)
    : whole_(whole), threads_(threads), part_bytes_(part_bytes) {}

Crew::~Crew() {
    if (!parts_.empty()) --decoding_files;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

// Files that are read at the same time share the threads.
void Crew::start() {
    const size_t own = std::max<size_t>(1, threads_ / ++decoding_files);
    for (size_t i = 0; i < own + 1; ++i) {
        parts_.push_back(std::make_unique<Part>(whole_.text_budget_bytes_));
        parts_.back()->decoder.begin_part(whole_);
        idle_.push_back(parts_.back().get());
    }
    for (size_t i = 1; i < own; ++i) workers_.emplace_back(&Crew::work, this);
}

// Decodes the part that waits longest; the lock is held before and after.
void Crew::decode_next(std::unique_lock<std::mutex>& lock) {
    Part* part = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    part->decoder.decode_part();
    lock.lock();
    part->is_done = true;
    done_.notify_one();
}

void Crew::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
        if (stop_) return;
        decode_next(lock);
    }
}

void Crew::wait_for(Part& part) {
    std::unique_lock lock(mutex_);
    while (!part.is_done) {
        if (waiting_.empty()) done_.wait(lock);
        else decode_next(lock);
    }
}

bool Crew::may_share() const {
    return whole_.is_among_events() && whole_.unread() < part_bytes_ && quarrels_ < MOST_QUARRELS;
}

void Crew::feed(const char* bytes, size_t size) {
    if (apart_ && idle_.empty()) join_first();
    if (!apart_) {
        if (!may_share()) {
            whole_.feed_here(bytes, size);
            return;
        }
        if (parts_.empty()) start();
        whole_.give_unread(pending_);
        apart_ = true;
    }
    pending_.append(bytes, size);
    if (pending_.size() < part_bytes_) return;
    const size_t cut = last_event(pending_);
    if (cut == 0) return drain();
    Part* part = idle_.back();
    idle_.pop_back();
    std::string behind = pending_.substr(cut);
    pending_.resize(cut);
    part->is_done = false;
    part->decoder.take_part(pending_);
    pending_.swap(behind);
    coming_.push_back(part);
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(part);
    }
    work_.notify_one();
}

// The text of a part goes to the whole, and all the part made of it is forgotten.
void Crew::read_again(Part& part) {
    wait_for(part);
    part.decoder.read_part_again(whole_);
    part.codes.clear();
    idle_.push_back(&part);
}

void Crew::join_first() {
    Part& part = *coming_.front();
    coming_.pop_front();
    wait_for(part);
    if (part.decoder.join_part(whole_, part.codes)) {
        idle_.push_back(&part);
        return;
    }
    ++quarrels_;
    read_again(part);
    for (; !coming_.empty(); coming_.pop_front()) read_again(*coming_.front());
    drain();
}

void Crew::drain() {
    while (!coming_.empty()) join_first();
    if (!apart_) return;
    apart_ = false;
    whole_.feed_here(pending_.data(), pending_.size());
    pending_.clear();
}

}  // namespace timesink
