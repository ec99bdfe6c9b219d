#include "costs.h"

#include <cmath>
#include <stdexcept>

namespace timesink {

namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

size_t place(int64_t number, size_t size) {
    require(static_cast<uint64_t>(number) < size, "no such place");
    return static_cast<size_t>(number);
}

}  // namespace

void shorten(std::span<int64_t> weight, View edges, Reals share) {
    require(edges.size() == share.size(), "share needs one value per edge");
    for (size_t i = 0; i < edges.size(); ++i) {
        int64_t& own = weight[place(edges[i], weight.size())];
        if (own > 0) own = std::llrint(static_cast<double>(own) * (1.0 - share[i]));
    }
}

Shares savings(View edges, View begin, View end, View start, View stop, Reals share) {
    const size_t size = edges.size(), bounds = 2 * start.size();
    require(begin.size() == size && end.size() == size, "columns differ in length");
    require(bounds > 0 && stop.size() == start.size() && share.size() == start.size(), "intervals need a share and two bounds each");
    const auto bound = [&](size_t i) { return i % 2 ? stop[i / 2] : start[i / 2]; };
    std::vector<double> sums(bounds, 0.0), slope(bounds, 0.0);  // what is saved up to each bound, and how that grows on
    for (size_t i = 1; i < bounds; ++i) {
        const double more = i % 2 ? static_cast<double>(difference(bound(i), bound(i - 1))) * share[i / 2] : 0.0;
        sums[i] = sums[i - 1] + more;
        slope[i - 1] = (sums[i] - sums[i - 1]) / static_cast<double>(std::max<int64_t>(difference(bound(i), bound(i - 1)), 1));
    }
    // Times come nearly in order: the bound before each is looked for from the last one's.
    const auto until = [&](int64_t time, size_t& after) {
        while (after < bounds && bound(after) <= time) ++after;
        while (after > 0 && bound(after - 1) > time) --after;
        return after == 0 ? 0.0 : slope[after - 1] * static_cast<double>(difference(time, bound(after - 1))) + sums[after - 1];
    };
    Shares made;
    made.edges.reserve(size);
    made.share.reserve(size);
    for (size_t i = 0, ended = 0, begun = 0; i < size; ++i) {
        const double own = until(end[i], ended) - until(begin[i], begun);
        if (own == 0.0) continue;
        made.edges.push_back(edges[i]);
        made.share.push_back(std::min(own / static_cast<double>(difference(end[i], begin[i])), 1.0));
    }
    return made;
}

bool same_demands(View weight, View unexplained, View other_weight, View other_unexplained) {
    require(weight.size() == unexplained.size() && other_weight.size() == other_unexplained.size(), "columns differ in length");
    const auto demand = [](int64_t own, int64_t more) { return own == disabled ? own : sum(own, more); };
    if (weight.size() != other_weight.size()) return false;
    for (size_t i = 0; i < weight.size(); ++i)
        if (demand(weight[i], unexplained[i]) != demand(other_weight[i], other_unexplained[i])) return false;
    return true;
}

Costs explain(View order, View first, View src, View weight, View time) {
    const size_t m = src.size();
    require(first.size() == order.size() + 1 && weight.size() == m, "a schedule's arrays differ in length");
    Costs made{Numbers(weight.begin(), weight.end()), Numbers(m)};
    for (size_t k = 0; k < order.size(); ++k) {
        const int64_t own = time[place(order[k], time.size())];
        int64_t latest = 0, binding = -1;
        for (int64_t e = first[k]; e < first[k + 1]; ++e) {
            const size_t edge = place(e, m);
            const int64_t before = time[place(src[edge], time.size())];
            made.weight[edge] = std::min(weight[edge], difference(own, before));
            const int64_t arrival = sum(before, made.weight[edge]);
            if (binding < 0 || arrival > latest) { latest = arrival; binding = e; }
        }
        if (binding >= 0) made.unexplained[static_cast<size_t>(binding)] = difference(own, latest);
    }
    return made;
}

Numbers passed(View weight, View edges, View begun, View over) {
    require(begun.size() == over.size(), "columns differ in length");
    Numbers sums(edges.size() + 1), made(begun.size());
    for (size_t i = 0; i < edges.size(); ++i)
        sums[i + 1] = sum(sums[i], std::max<int64_t>(weight[place(edges[i], weight.size())], 0));
    for (size_t i = 0; i < begun.size(); ++i)
        made[i] = difference(sums[place(over[i], sums.size())], sums[place(begun[i], sums.size())]);
    return made;
}

}  // namespace timesink
