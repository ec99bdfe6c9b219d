// What changes of a program do to the costs of its edges: the part of a what-if that is drawn again and again.
#pragma once

#include "replay.h"

namespace timesink {

using Reals = std::span<const double>;

// Edges that get shorter, and by which share.
struct Shares {
    Numbers edges;
    std::vector<double> share;
};

// What each edge weighs, and what is left on it unexplained.
struct Costs {
    Numbers weight, unexplained;
};

// Each throws std::invalid_argument where its arrays contradict one another.

// Of each edge with a weight above zero a share goes; rounding keeps the order of two savings.
void shorten(std::span<int64_t> weight, View edges, Reals share);
// What shares of disjoint intervals [start, stop), in order, save of edges from `begin` to `end`: what is saved grows
// linearly through each interval, and an edge saves the difference between its ends.
Shares savings(View edges, View begin, View end, View start, View stop, Reals share);
// Whether two networks demand the same of their edges: a weight and what is unexplained, or nothing.
bool same_demands(View weight, View unexplained, View other_weight, View other_unexplained);
// The same times of all nodes, explained by other weights, each at most what passed between its two nodes: what is left
// between a node's time and its latest arrival stays on the edge of that, the first of those that tie.
Costs explain(View order, View first, View src, View weight, View time);
// The sums of the weights above zero of `edges[begun[i]]` to `edges[over[i] - 1]`.
Numbers passed(View weight, View edges, View begun, View over);

}  // namespace timesink
