// The replay of a dependency graph: a schedule made once, then one linear pass per what-if.
#include "replay.h"

#include <numeric>
#include <stdexcept>

namespace timesink {

namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// No node is negative, nor is what is left between it and the last: all signs at once.
void check_nodes(View nodes, size_t count) {
    const uint64_t last = static_cast<uint64_t>(count) - 1;
    uint64_t signs = 0;
    for (const int64_t node : nodes) signs |= static_cast<uint64_t>(node) | (last - static_cast<uint64_t>(node));
    require(signs >> 63 == 0, "an edge names a node that does not exist");
}

// Edges grouped by one of their ends: offsets per node and edge numbers, in edge order within a node.
struct Groups {
    Numbers first, edges;
    Groups(View end, size_t nodes) : first(nodes + 1, 0), edges(end.size()) {
        for (const int64_t node : end) ++first[node + 1];
        std::partial_sum(first.begin(), first.end(), first.begin());
        Numbers next(first.begin(), first.end() - 1);
        for (size_t e = 0; e < end.size(); ++e) edges[next[end[e]]++] = static_cast<int64_t>(e);
    }
};

// Kahn's order; where all that is left waits in a cycle, its earliest node is freed.
Numbers topological(View dst, View observed, const Groups& out, const Groups& in) {
    const size_t n = observed.size();
    Numbers order, missing(n), by_time;
    std::vector<uint8_t> placed(n, 0);
    order.reserve(n);
    const auto place = [&](int64_t v) {
        order.push_back(v);
        placed[v] = 1;
    };
    for (size_t v = 0; v < n; ++v) missing[v] = in.first[v + 1] - in.first[v];
    for (size_t v = 0; v < n; ++v)
        if (missing[v] == 0) place(static_cast<int64_t>(v));
    size_t done = 0, next_by_time = 0;
    while (order.size() < n || done < order.size()) {
        if (done == order.size()) {
            if (by_time.empty()) {
                by_time.resize(n);
                std::iota(by_time.begin(), by_time.end(), 0);
                std::stable_sort(by_time.begin(), by_time.end(),
                                 [&](int64_t a, int64_t b) { return observed[a] < observed[b]; });
            }
            while (placed[by_time[next_by_time]]) ++next_by_time;
            place(by_time[next_by_time]);
        }
        const int64_t v = order[done++];
        for (int64_t k = out.first[v]; k < out.first[v + 1]; ++k) {
            const int64_t w = dst[out.edges[k]];
            if (--missing[w] == 0 && !placed[w]) place(w);
        }
    }
    return order;
}

}  // namespace

Schedule schedule(View src, View dst, View observed) {
    const size_t n = observed.size(), m = src.size();
    require(dst.size() == m, "src and dst differ in length");
    check_nodes(src, n);
    check_nodes(dst, n);
    const Groups out(src, n), in(dst, n);
    Schedule made;
    made.order = topological(dst, observed, out, in);
    Numbers position(n);
    for (size_t k = 0; k < n; ++k) position[made.order[k]] = static_cast<int64_t>(k);
    made.first.reserve(n + 1);
    made.in_edges.reserve(m);
    for (const int64_t v : made.order) {
        for (int64_t k = in.first[v]; k < in.first[v + 1]; ++k) {
            const int64_t e = in.edges[k];
            (position[src[e]] < position[v] ? made.in_edges : made.dropped).push_back(e);
        }
        made.first.push_back(static_cast<int64_t>(made.in_edges.size()));
    }
    return made;
}

Replayed replay(View order, View first, View src, View weight, View unexplained, View own_time) {
    const size_t n = order.size(), m = src.size();
    require(first.size() == n + 1 && own_time.size() == n, "the replay needs one value per node");
    require(weight.size() == m && unexplained.size() == m, "the replay needs one value per edge");
    require(first.front() == 0 && first.back() == static_cast<int64_t>(m), "the offsets do not cover the edges");
    Replayed made{Numbers(n), Numbers(n)};
    for (size_t k = 0; k < n; ++k) {
        const size_t v = static_cast<size_t>(order[k]);
        require(v < n && first[k] <= first[k + 1] && first[k + 1] <= first.back(), "the schedule is not one");
        int64_t best = disabled, edge = -1;
        for (int64_t e = first[k]; e < first[k + 1]; ++e) {
            const size_t from = static_cast<size_t>(src[e]);
            require(from < n, "an edge names a node that does not exist");
            if (weight[e] == disabled) continue;
            const int64_t demand = sum(made.time[from], sum(weight[e], unexplained[e]));
            if (demand > best) { best = demand; edge = e; }
        }
        made.time[v] = edge < 0 ? own_time[v] : best;
        made.binding[v] = edge;
    }
    return made;
}

Numbers path_back(View src, View binding, View time, int64_t last, int64_t until_ns) {
    const int64_t n = static_cast<int64_t>(binding.size()), m = static_cast<int64_t>(src.size());
    require(time.size() == binding.size() && last >= 0 && last < n, "no such node");
    Numbers edges;
    for (int64_t v = last, steps = 0; steps <= n; ++steps) {
        const int64_t e = binding[v];
        if (e < 0 || e >= m || time[v] <= until_ns) break;
        require(src[e] >= 0 && src[e] < n, "an edge names a node that does not exist");
        edges.push_back(e);
        v = src[e];
    }
    return edges;
}

}  // namespace timesink
