// Max-plus replay of a dependency graph: a schedule made once, then one linear pass per what-if.
//
// An edge says "dst happens no earlier than weight after src". A node's time is the largest such demand. A disabled edge
// has weight `disabled`.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace nb = nanobind;
using Times = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

namespace {

constexpr int64_t disabled = std::numeric_limits<int64_t>::min() / 4;

Result to_numpy(std::vector<int64_t>&& values) {
    auto* owned = new std::vector<int64_t>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
    return Result(owned->data(), {owned->size()}, owner);
}

void check_nodes(const Times& nodes, size_t count) {
    for (size_t i = 0; i < nodes.shape(0); ++i)
        if (nodes.data()[i] < 0 || static_cast<size_t>(nodes.data()[i]) >= count) throw nb::value_error("an edge names a node that does not exist");
}

// Edges grouped by one of their ends: offsets per node and edge numbers, in edge order within a node.
struct Groups {
    std::vector<int64_t> first, edges;
    Groups(const int64_t* end, size_t edge_count, size_t nodes) : first(nodes + 1, 0), edges(edge_count) {
        for (size_t e = 0; e < edge_count; ++e) ++first[end[e] + 1];
        std::partial_sum(first.begin(), first.end(), first.begin());
        std::vector<int64_t> next(first.begin(), first.end() - 1);
        for (size_t e = 0; e < edge_count; ++e) edges[next[end[e]]++] = static_cast<int64_t>(e);
    }
};

// A topological order of the nodes (Kahn), the in-edges of each node in that order, and the edges that had to be left
// out because they close a cycle (contradictory records): the earliest waiting node goes first then.
nb::tuple schedule(Times src, Times dst, Times observed) {
    const size_t n = observed.shape(0), m = src.shape(0);
    if (dst.shape(0) != m) throw nb::value_error("src and dst differ in length");
    check_nodes(src, n);
    check_nodes(dst, n);
    std::vector<int64_t> order, first{0}, in_edges, dropped;
    {
        nb::gil_scoped_release released;
        const Groups out(src.data(), m, n), in(dst.data(), m, n);
        std::vector<int64_t> missing(n);
        std::vector<uint8_t> placed(n, 0);
        for (size_t v = 0; v < n; ++v) missing[v] = in.first[v + 1] - in.first[v];
        order.reserve(n);
        for (size_t v = 0; v < n; ++v)
            if (missing[v] == 0) { order.push_back(static_cast<int64_t>(v)); placed[v] = 1; }
        std::vector<int64_t> by_time;
        size_t done = 0, next_by_time = 0;
        while (order.size() < n || done < order.size()) {
            if (done == order.size()) {  // a cycle: free its earliest node
                if (by_time.empty()) {
                    by_time.resize(n);
                    std::iota(by_time.begin(), by_time.end(), 0);
                    const int64_t* t = observed.data();
                    std::stable_sort(by_time.begin(), by_time.end(), [t](int64_t a, int64_t b) { return t[a] < t[b]; });
                }
                while (placed[by_time[next_by_time]]) ++next_by_time;
                order.push_back(by_time[next_by_time]);
                placed[by_time[next_by_time]] = 1;
            }
            const int64_t v = order[done++];
            for (int64_t k = out.first[v]; k < out.first[v + 1]; ++k) {
                const int64_t w = dst.data()[out.edges[k]];
                if (--missing[w] == 0 && !placed[w]) { order.push_back(w); placed[w] = 1; }
            }
        }
        std::vector<int64_t> position(n);
        for (size_t k = 0; k < n; ++k) position[order[k]] = static_cast<int64_t>(k);
        first.reserve(n + 1);
        in_edges.reserve(m);
        for (const int64_t v : order) {
            for (int64_t k = in.first[v]; k < in.first[v + 1]; ++k) {
                const int64_t e = in.edges[k];
                if (position[src.data()[e]] < position[v]) in_edges.push_back(e);
                else dropped.push_back(e);
            }
            first.push_back(static_cast<int64_t>(in_edges.size()));
        }
    }
    return nb::make_tuple(to_numpy(std::move(order)), to_numpy(std::move(first)), to_numpy(std::move(in_edges)), to_numpy(std::move(dropped)));
}

struct Schedule {
    Times order, first, src, weight;
    Schedule(Times o, Times f, Times s, Times w) : order(o), first(f), src(s), weight(w) {
        const size_t n = order.shape(0);
        if (first.shape(0) != n + 1 || src.shape(0) != weight.shape(0)) throw nb::value_error("the schedule's arrays differ in length");
        if (first.data()[0] != 0 || first.data()[n] != static_cast<int64_t>(src.shape(0))) throw nb::value_error("the schedule's offsets do not cover its edges");
        check_nodes(order, n);
        check_nodes(src, n);
    }
};

// Times of all nodes, and for each the edge that bound it (-1: none, the node keeps its own time).
nb::tuple replay(Times order, Times first, Times src, Times weight, Times own_time) {
    const Schedule s(order, first, src, weight);
    const size_t n = order.shape(0);
    if (own_time.shape(0) != n) throw nb::value_error("own_time needs one value per node");
    std::vector<int64_t> time(n), binding(n, -1);
    {
        nb::gil_scoped_release released;
        const int64_t *from = src.data(), *w = weight.data(), *f = first.data();
        for (size_t k = 0; k < n; ++k) {
            const int64_t v = order.data()[k];
            int64_t best = disabled, edge = -1;
            for (int64_t e = f[k]; e < f[k + 1]; ++e) {
                if (w[e] == disabled) continue;
                const int64_t demand = time[from[e]] + w[e];
                if (demand > best) { best = demand; edge = e; }
            }
            time[v] = edge < 0 ? own_time.data()[v] : best;
            binding[v] = edge;
        }
    }
    return nb::make_tuple(to_numpy(std::move(time)), to_numpy(std::move(binding)));
}

// The binding edges from `last` back to the first node that happened at or before `until_ns`, latest first.
nb::ndarray<nb::numpy, int64_t, nb::ndim<1>> path_back(Times src, Times binding, Times time, int64_t last, int64_t until_ns) {
    const int64_t n = static_cast<int64_t>(binding.shape(0)), m = static_cast<int64_t>(src.shape(0));
    if (time.shape(0) != binding.shape(0) || last < 0 || last >= n) throw nb::value_error("no such node");
    std::vector<int64_t> edges;
    for (int64_t v = last, steps = 0; steps <= n; ++steps) {
        const int64_t e = binding.data()[v];
        if (e < 0 || e >= m || time.data()[v] <= until_ns) break;
        edges.push_back(e);
        v = src.data()[e];
    }
    return to_numpy(std::move(edges));
}

// Innermost interval at every instant: disjoint segments of each group's nested intervals (sorted by group, start,
// longest first), with the row and the smallest rank among that row and all that enclose it.
nb::tuple innermost(Times group, Times start, Times end, Times rank) {
    const size_t n = start.shape(0);
    if (group.shape(0) != n || end.shape(0) != n || rank.shape(0) != n) throw nb::value_error("group, start, end and rank differ in length");
    std::vector<int64_t> seg_start, seg_end, seg_row, seg_top;
    {
        nb::gil_scoped_release released;
        const int64_t *g = group.data(), *s = start.data(), *e = end.data(), *r = rank.data();
        struct Open { int64_t row, end, top; };
        std::vector<Open> open;
        int64_t cursor = 0;
        auto emit = [&](int64_t until) {  // the innermost open interval owns [cursor, until)
            if (until > cursor && !open.empty()) {
                seg_start.push_back(cursor); seg_end.push_back(until);
                seg_row.push_back(open.back().row); seg_top.push_back(open.back().top);
            }
            cursor = std::max(cursor, until);
        };
        auto close_until = [&](int64_t now) {
            while (!open.empty() && open.back().end <= now) { emit(open.back().end); open.pop_back(); }
        };
        for (size_t i = 0; i < n; ++i) {
            if (i == 0 || g[i] != g[i - 1]) {
                close_until(std::numeric_limits<int64_t>::max());
                open.clear();
                cursor = s[i];
            }
            close_until(s[i]);
            emit(s[i]);
            cursor = s[i];
            const bool inside = !open.empty();
            open.push_back({static_cast<int64_t>(i), e[i], inside ? std::min(open.back().top, r[i]) : r[i]});
        }
        close_until(std::numeric_limits<int64_t>::max());
    }
    return nb::make_tuple(to_numpy(std::move(seg_start)), to_numpy(std::move(seg_end)), to_numpy(std::move(seg_row)), to_numpy(std::move(seg_top)));
}

}  // namespace

void bind_replay(nb::module_& m) {
    m.attr("DISABLED") = disabled;
    m.def("schedule", &schedule, nb::arg("src"), nb::arg("dst"), nb::arg("observed_ns"),
          "Topological order, offsets of in-edges, in-edges in that order, and edges dropped to break cycles.");
    m.def("replay", &replay, nb::arg("order"), nb::arg("first"), nb::arg("src"), nb::arg("weight_ns"), nb::arg("own_time_ns"),
          "Time and binding edge of every node.");
    m.def("path_back", &path_back, nb::arg("src"), nb::arg("binding"), nb::arg("time_ns"), nb::arg("last"), nb::arg("until_ns"),
          "Binding edges from a node back to a time, latest first.");
    m.def("innermost", &innermost, nb::arg("group"), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("rank"),
          "Segments of the innermost interval: start, end, row, smallest rank of the row and its enclosers.");
}
