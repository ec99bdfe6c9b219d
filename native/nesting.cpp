// The sweeps over nested intervals: one pass with a stack, over intervals sorted by (group, start, longest first).
#include <stdexcept>

#include "replay.h"

namespace timesink {

namespace {

// The intervals that are open at a moment of the sweep; what the innermost of them owns is written as it goes by. One
// that crosses those around it stays open after they end, and then has less around it.
class Sweep {
public:
    explicit Sweep(Segments& made) : made_(made) {}

    void begin_group(int64_t start) {
        close_until(std::numeric_limits<int64_t>::max());
        open_.clear();
        cursor_ = start;
    }

    void add(int64_t row, int64_t start, int64_t end, int64_t rank) {
        close_until(start);
        emit(start);
        cursor_ = start;
        push({row, end, rank, 0, 0});
    }

    void close_until(int64_t now) {
        for (; !open_.empty() && open_.back().end <= now; open_.pop_back()) emit(open_.back().end);
    }

private:
    struct Open {
        int64_t row, end, rank, top, all_until;  // the least rank, and the first end, of it and of those around it
    };

    void push(Open one) {
        one.top = open_.empty() ? one.rank : std::min(open_.back().top, one.rank);
        one.all_until = open_.empty() ? one.end : std::min(open_.back().all_until, one.end);
        open_.push_back(one);
    }

    void emit(int64_t until) {  // the innermost open interval owns [cursor, until)
        while (until > cursor_ && !open_.empty()) {
            if (open_.back().all_until <= cursor_) leave_ended();
            const int64_t stop = std::min(until, open_.back().all_until);
            made_.start.push_back(cursor_);
            made_.end.push_back(stop);
            made_.row.push_back(open_.back().row);
            made_.top.push_back(open_.back().top);
            cursor_ = stop;
        }
        cursor_ = std::max(cursor_, until);
    }

    void leave_ended() {  // the innermost has not ended where this is asked
        std::vector<Open> left;
        std::swap(left, open_);
        for (const Open& one : left)
            if (one.end > cursor_) push(one);
    }

    Segments& made_;
    std::vector<Open> open_;
    int64_t cursor_ = 0;
};

}  // namespace

Segments innermost(View group, View start, View end, View rank) {
    const size_t n = start.size();
    if (group.size() != n || end.size() != n || rank.size() != n)
        throw std::invalid_argument("group, start, end and rank differ in length");
    Segments made;
    Sweep sweep(made);
    for (size_t i = 0; i < n; ++i) {
        if (i == 0 || group[i] != group[i - 1]) sweep.begin_group(start[i]);
        sweep.add(static_cast<int64_t>(i), start[i], end[i], rank[i]);
    }
    sweep.close_until(std::numeric_limits<int64_t>::max());
    return made;
}

// An interval that ends after its would-be parent (they cross) is a child of the next one out that does enclose it.
Nested enclose(View group, View start, View end) {
    const size_t n = start.size();
    if (group.size() != n || end.size() != n) throw std::invalid_argument("group, start and end differ in length");
    Nested made{Numbers(n, -1), Numbers(n, 0), Numbers(n)};
    std::vector<size_t> open;
    const auto is_over = [&](size_t row, size_t now) {
        const bool both_instants = end[row] == start[now] && start[row] == start[now] && end[now] == start[now];
        return end[row] <= start[now] && !both_instants;
    };
    for (size_t i = 0; i < n; ++i) {
        if (i && group[i] != group[i - 1]) open.clear();
        while (!open.empty() && is_over(open.back(), i)) open.pop_back();
        size_t level = open.size();
        while (level > 0 && end[open[level - 1]] < end[i]) --level;
        made.self[i] = difference(end[i], start[i]);
        made.depth[i] = static_cast<int64_t>(level);
        if (level > 0) {
            const size_t parent = open[level - 1];
            made.parent[i] = static_cast<int64_t>(parent);
            made.self[parent] = difference(made.self[parent], made.self[i]);
        }
        open.push_back(i);
    }
    return made;
}

}  // namespace timesink
