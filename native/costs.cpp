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

Shares saved(View intervals, Reals between, Reals share, View edges, View lengths, const Ends& end, const Ends& begin) {
    const size_t bounds = between.size(), size = edges.size();
    require(share.size() == intervals.size() && bounds == 2 * share.size(), "intervals need a share and two bounds each");
    require(lengths.size() == size && end.bound.size() == size && end.since.size() == size && begin.bound.size() == size &&
                begin.since.size() == size, "columns differ in length");
    std::vector<double> sums(bounds), slope(bounds);  // what is saved up to each bound, and how that grows from there on
    double sum = 0.0;
    for (size_t i = 0; i < bounds; ++i) {
        if (i % 2) sum += static_cast<double>(intervals[i / 2]) * share[i / 2];
        sums[i] = sum;
        if (i > 0) slope[i - 1] = (sums[i] - sums[i - 1]) / between[i - 1];
    }
    const auto until = [&](const Ends& ends, size_t i) {
        const size_t last = place(ends.bound[i], bounds);
        return slope[last] * ends.since[i] + sums[last];
    };
    Shares made;
    made.edges.reserve(size);
    made.share.reserve(size);
    for (size_t i = 0; i < size; ++i) {
        const double own = until(end, i) - until(begin, i);
        if (own == 0.0) continue;
        const double part = own / static_cast<double>(lengths[i]);
        made.edges.push_back(edges[i]);
        made.share.push_back(part > 1.0 ? 1.0 : part);
    }
    return made;
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
