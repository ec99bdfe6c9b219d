// Fuzz target of the replay and of the sweeps over intervals, built with libFuzzer, ASan and UBSan (see ../README.md).
//
// The bytes become a small graph, with cycles, and intervals, nested or crossing, whose times lie anywhere in int64.
// Arrays as the readers make them must give results that hold their laws; arrays that contradict one another must be
// refused, and read nowhere outside themselves.
#include "../../native/replay.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

using namespace timesink;

namespace {

void require(bool holds, const char* law) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", law);
    std::abort();
}

int64_t any_time(FuzzedDataProvider& bytes) {
    switch (bytes.ConsumeIntegralInRange<int>(0, 7)) {
        case 0: return bytes.ConsumeIntegral<int64_t>();
        case 1: return bytes.PickValueInArray({disabled, disabled + 1, std::numeric_limits<int64_t>::min(),
                                               std::numeric_limits<int64_t>::max(), int64_t{-1}});
        default: return bytes.ConsumeIntegralInRange<int64_t>(0, 40);
    }
}

Numbers times(FuzzedDataProvider& bytes, size_t count) {
    Numbers made(count);
    for (int64_t& value : made) value = any_time(bytes);
    return made;
}

Numbers nodes(FuzzedDataProvider& bytes, size_t count, size_t among) {
    Numbers made(count);
    for (int64_t& value : made) value = bytes.ConsumeIntegralInRange<int64_t>(0, static_cast<int64_t>(among) - 1);
    return made;
}

// Whether some edge closes a cycle, found the slow way: nodes without in-edges are taken away until none is left.
bool has_cycle(const Numbers& src, const Numbers& dst, size_t n) {
    std::vector<bool> gone(n, false);
    for (size_t round = 0; round < n; ++round)
        for (size_t v = 0; v < n; ++v) {
            bool waits = false;
            for (size_t e = 0; e < src.size(); ++e) waits |= dst[e] == static_cast<int64_t>(v) && !gone[src[e]];
            if (!waits) gone[v] = true;
        }
    return !std::all_of(gone.begin(), gone.end(), [](bool is_gone) { return is_gone; });
}

void check_plan(const Schedule& plan, const Numbers& src, const Numbers& dst, size_t n) {
    Numbers sorted = plan.order, all(n), edges = plan.in_edges, every_edge(src.size());
    std::iota(all.begin(), all.end(), 0);
    std::iota(every_edge.begin(), every_edge.end(), 0);
    std::sort(sorted.begin(), sorted.end());
    require(sorted == all, "every node has one place in the order");
    edges.insert(edges.end(), plan.dropped.begin(), plan.dropped.end());
    std::sort(edges.begin(), edges.end());
    require(edges == every_edge, "every edge is kept or dropped, once");
    require(plan.dropped.empty() || has_cycle(src, dst, n), "an edge is dropped only for a cycle");
    std::vector<bool> done(n, false);
    for (size_t k = 0; k < n; ++k) {
        for (int64_t e = plan.first[k]; e < plan.first[k + 1]; ++e)
            require(dst[plan.in_edges[e]] == plan.order[k] && done[src[plan.in_edges[e]]], "an edge leads forward");
        done[plan.order[k]] = true;
    }
}

void check_times(const Replayed& made, const Schedule& plan, const Numbers& src, const Numbers& weight,
                 const Numbers& unexplained, const Numbers& own) {
    for (size_t k = 0; k < plan.order.size(); ++k) {
        const int64_t v = plan.order[k];
        require(made.binding[v] >= 0 || made.time[v] == own[v], "a node that nothing binds keeps its own time");
        for (int64_t e = plan.first[k]; e < plan.first[k + 1]; ++e) {
            if (weight[e] == disabled) continue;
            const int64_t demand = sum(made.time[src[e]], sum(weight[e], unexplained[e]));
            require(made.binding[v] < 0 ? demand <= disabled : made.time[v] >= demand, "no demand is left unmet");
            require(made.binding[v] != e || made.time[v] == demand, "what binds is tight");
        }
    }
}

void graph(FuzzedDataProvider& bytes) {
    const size_t n = bytes.ConsumeIntegralInRange<size_t>(1, 12), m = bytes.ConsumeIntegralInRange<size_t>(0, 30);
    const Numbers src = nodes(bytes, m, n), dst = nodes(bytes, m, n), observed = times(bytes, n);
    const Schedule plan = schedule(src, dst, observed);
    check_plan(plan, src, dst, n);
    Numbers from, weight = times(bytes, plan.in_edges.size()), unexplained = times(bytes, plan.in_edges.size());
    for (const int64_t e : plan.in_edges) from.push_back(src[e]);
    const Replayed made = replay(plan.order, plan.first, from, weight, unexplained, observed);
    check_times(made, plan, from, weight, unexplained, observed);
    const int64_t last = bytes.ConsumeIntegralInRange<int64_t>(0, static_cast<int64_t>(n) - 1);
    const Numbers path = path_back(from, made.binding, made.time, last, any_time(bytes));
    require(path.size() <= n, "a path visits no node twice");
}

void contradictory(FuzzedDataProvider& bytes) {
    const auto some = [&] { return times(bytes, bytes.ConsumeIntegralInRange<size_t>(0, 6)); };
    try {
        const Numbers order = some(), first = some(), src = some(), weight = some();
        replay(order, first, src, weight, some(), some());
    } catch (const std::invalid_argument&) {
    }
    try {
        const Numbers src = some(), binding = some(), time = some();
        path_back(src, binding, time, any_time(bytes), any_time(bytes));
    } catch (const std::invalid_argument&) {
    }
    try {
        const Numbers src = some(), dst = some();
        schedule(src, dst, some());
    } catch (const std::invalid_argument&) {
    }
    try {
        const Numbers order = some(), parent = some(), own = some();
        named_alike(parent, own);
        inclusive(order, parent, own);
        inherited(order, parent, own, bytes.ConsumeBool());
    } catch (const std::invalid_argument&) {
    }
    try {
        Numbers order;
        const Numbers first = some(), start = some();
        nest(first, start, some(), order);
        require(order.size() == start.size(), "every row has a place");
    } catch (const std::invalid_argument&) {
    }
}

void intervals(FuzzedDataProvider& bytes) {
    const size_t n = bytes.ConsumeIntegralInRange<size_t>(0, 16);
    const bool is_sorted = bytes.ConsumeBool();
    std::vector<std::array<int64_t, 3>> rows(n);
    for (auto& [group, start, negative_end] : rows) {
        const int64_t a = any_time(bytes), b = any_time(bytes);
        group = bytes.ConsumeIntegralInRange<int64_t>(0, 1);
        start = is_sorted ? std::min(a, b) : a;
        negative_end = difference(-1, is_sorted ? std::max(a, b) : b);  // longest first; ~end never overflows
    }
    if (is_sorted) std::sort(rows.begin(), rows.end());
    Numbers group, start, end;
    for (const auto& row : rows) {
        group.push_back(row[0]);
        start.push_back(row[1]);
        end.push_back(difference(-1, row[2]));
    }
    const Segments made = innermost(group, start, end, times(bytes, n));
    const Nested nested = enclose(group, start, end);
    if (!is_sorted) return;
    for (size_t s = 0; s < made.row.size(); ++s) {
        const int64_t row = made.row[s];
        require(made.start[s] < made.end[s] && start[row] <= made.start[s] && made.end[s] <= end[row],
                "a segment lies in its interval");
        require(s == 0 || group[made.row[s - 1]] != group[row] || made.end[s - 1] <= made.start[s],
                "segments of a group are disjoint");
    }
    for (size_t i = 0; i < n; ++i) {
        const int64_t p = nested.parent[i];
        require(p >= 0 || nested.depth[i] == 0, "an interval without a parent is outermost");
        require(p < 0 || (group[p] == group[i] && start[p] <= start[i] && end[i] <= end[p]), "a parent encloses");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    FuzzedDataProvider bytes(data, size);
    graph(bytes);
    contradictory(bytes);
    intervals(bytes);
    return 0;
}
