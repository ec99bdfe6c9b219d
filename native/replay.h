// Max-plus replay of a dependency graph, and the sweeps over nested intervals. Plain C++: no Python here.
//
// An edge says "dst happens no earlier than weight after src". A node's time is the largest such demand. A disabled edge
// has weight `disabled`. Times come from traces and may lie anywhere in int64: sums and differences saturate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace timesink {

using Numbers = std::vector<int64_t>;
using View = std::span<const int64_t>;

constexpr int64_t disabled = std::numeric_limits<int64_t>::min() / 4;

inline int64_t sum(int64_t a, int64_t b) {
    int64_t result;
    if (!__builtin_add_overflow(a, b, &result)) return result;
    return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

inline int64_t difference(int64_t a, int64_t b) {
    int64_t result;
    if (!__builtin_sub_overflow(a, b, &result)) return result;
    return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

// A topological order of the nodes, offsets of each node's in-edges in that order, those edges, and the edges left out
// because they close a cycle (contradictory records): the earliest waiting node goes first then.
struct Schedule {
    Numbers order, first{0}, in_edges, dropped;
};

// Times of all nodes, and for each the edge that bound it (-1: none, the node keeps its own time).
struct Replayed {
    Numbers time, binding;
};

// Disjoint segments of the innermost interval: its row, and the smallest rank among that row and all that enclose it.
struct Segments {
    Numbers start, end, row, top;
};

// The row of the innermost interval of the same group that encloses each (-1: none), its depth, and its self time.
struct Nested {
    Numbers parent, depth, self;
};

// Each throws std::invalid_argument where its arrays contradict one another.
Schedule schedule(View src, View dst, View observed);
Replayed replay(View order, View first, View src, View weight, View unexplained, View own_time);
Numbers path_back(View src, View binding, View time, int64_t last, int64_t until_ns);
Segments innermost(View group, View start, View end, View rank);
Nested enclose(View group, View start, View end);
// The same of rows in order of thread (`first` has where each begins), start and end; `order` gets them parents first.
Nested nest(View first, View start, View end, Numbers& order);
// Passes over such trees: the sum over each row and all in it; the value of the outermost, or else the innermost, row
// around each and including it that has one (from 0 on); the nearest row around each that has its name, -1 for none.
Numbers inclusive(View order, View parent, View own);
Numbers inherited(View order, View parent, View own, bool outermost);
Numbers named_alike(View parent, View name);

}  // namespace timesink
