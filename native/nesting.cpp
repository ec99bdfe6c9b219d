// The sweeps over nested intervals: one pass with a stack, over intervals sorted by (group, start, longest first).
#include <stdexcept>
#include <utility>

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

namespace {

// An interval that ends after its would-be parent (they cross) is a child of the next one out that does enclose it.
class Trees {
public:
    Trees(View start, View end) : made{Numbers(start.size(), -1), Numbers(start.size(), 0), Numbers(start.size())},
                                  start_(start), end_(end) {}

    void begin_group() { open_.clear(); }

    void add(size_t row) {
        while (!open_.empty() && is_over(open_.back(), row)) open_.pop_back();
        size_t level = open_.size();
        while (level > 0 && end_[open_[level - 1]] < end_[row]) --level;
        made.self[row] = difference(end_[row], start_[row]);
        made.depth[row] = static_cast<int64_t>(level);
        if (level > 0) {
            const size_t parent = open_[level - 1];
            made.parent[row] = static_cast<int64_t>(parent);
            made.self[parent] = difference(made.self[parent], made.self[row]);
        }
        open_.push_back(row);
    }

    Nested made;

private:
    bool is_over(size_t row, size_t now) const {
        const bool both_instants =
            end_[row] == start_[now] && start_[row] == start_[now] && end_[now] == start_[now];
        return end_[row] <= start_[now] && !both_instants;
    }

    View start_, end_;
    std::vector<size_t> open_;
};

void check_trees(View order, View parent, View own) {
    const size_t n = parent.size();
    if (own.size() != n || order.size() != n) throw std::invalid_argument("order, parent and values differ in length");
    for (size_t k = 0; k < n; ++k)
        if (order[k] < 0 || static_cast<size_t>(order[k]) >= n || parent[k] < -1 || parent[k] >= static_cast<int64_t>(n))
            throw std::invalid_argument("no such row");
}

}  // namespace

Nested enclose(View group, View start, View end) {
    const size_t n = start.size();
    if (group.size() != n || end.size() != n) throw std::invalid_argument("group, start and end differ in length");
    Trees trees(start, end);
    for (size_t i = 0; i < n; ++i) {
        if (i && group[i] != group[i - 1]) trees.begin_group();
        trees.add(i);
    }
    return std::move(trees.made);
}

Nested nest(View first, View start, View end, Numbers& order) {
    const size_t n = start.size();
    if (end.size() != n) throw std::invalid_argument("start and end differ in length");
    Trees trees(start, end);
    order.reserve(n);
    size_t row = 0, thread = 0;
    while (row < n) {
        for (; thread < first.size() && first[thread] <= static_cast<int64_t>(row); ++thread) trees.begin_group();
        const size_t until = thread < first.size() ? std::min(n, static_cast<size_t>(first[thread])) : n;
        size_t last = row;  // of those that start together the longest is the last
        while (last + 1 < until && start[last + 1] == start[row]) ++last;
        for (size_t k = last + 1; k-- > row;) {
            trees.add(k);
            order.push_back(static_cast<int64_t>(k));
        }
        row = last + 1;
    }
    return std::move(trees.made);
}

Numbers inclusive(View order, View parent, View own) {
    check_trees(order, parent, own);
    Numbers total(own.begin(), own.end());
    for (size_t k = order.size(); k-- > 0;) {
        const int64_t above = parent[order[k]];
        if (above >= 0) total[above] = sum(total[above], total[order[k]]);
    }
    return total;
}

Numbers inherited(View order, View parent, View own, bool outermost) {
    check_trees(order, parent, own);
    Numbers value(own.begin(), own.end());
    for (const int64_t row : order) {
        const int64_t above = parent[row];
        if (above >= 0 && (outermost ? value[above] >= 0 : value[row] < 0)) value[row] = value[above];
    }
    return value;
}

Numbers named_alike(View parent, View name) {
    const int64_t n = static_cast<int64_t>(parent.size());
    if (name.size() != parent.size()) throw std::invalid_argument("parent and name differ in length");
    Numbers nearest(parent.size(), -1);
    for (int64_t row = 0; row < n; ++row) {
        int64_t above = parent[row];
        for (int64_t steps = 0; above >= 0 && above < n && name[above] != name[row] && steps < n; ++steps)
            above = parent[above];
        nearest[row] = above;
    }
    return nearest;
}

}  // namespace timesink
