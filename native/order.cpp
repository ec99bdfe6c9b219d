#include "order.h"

#include <algorithm>
#include <unordered_map>

#include "decode.h"

namespace timesink {

namespace {

struct Pair {
    int64_t first, second;
    bool operator==(const Pair&) const = default;
    auto operator<=>(const Pair&) const = default;
};

struct PairHash {
    size_t operator()(const Pair& p) const {
        return static_cast<size_t>((static_cast<uint64_t>(p.first) * 0x9e3779b97f4a7c15ull) ^
                                   (static_cast<uint64_t>(p.second) * 0xd6e8feb86659fd93ull));
    }
};

// The rank of each row's group among all groups, and how many rows each has.
std::vector<size_t> rank_groups(const int64_t* first, const int64_t* second, size_t rows, std::vector<uint32_t>& rank) {
    std::unordered_map<Pair, uint32_t, PairHash> seen;
    std::vector<Pair> groups;
    Pair last{0, 0};
    uint32_t current = 0;
    for (size_t i = 0; i < rows; ++i) {
        const Pair pair{first ? first[i] : 0, second ? second[i] : 0};
        if (i == 0 || pair != last) {
            const auto [found, is_new] = seen.try_emplace(pair, static_cast<uint32_t>(groups.size()));
            if (is_new) groups.push_back(pair);
            current = found->second;
            last = pair;
        }
        rank[i] = current;
    }
    std::vector<uint32_t> by_key(groups.size()), place(groups.size());
    for (uint32_t i = 0; i < by_key.size(); ++i) by_key[i] = i;
    std::sort(by_key.begin(), by_key.end(), [&](uint32_t a, uint32_t b) { return groups[a] < groups[b]; });
    for (uint32_t i = 0; i < by_key.size(); ++i) place[by_key[i]] = i;
    std::vector<size_t> size(groups.size(), 0);
    for (size_t i = 0; i < rows; ++i) ++size[rank[i] = place[rank[i]]];
    return size;
}

struct Row {
    int64_t start, end;
    uint32_t at;
};

bool earlier(const Row& a, const Row& b) {
    if (a.start != b.start) return a.start < b.start;
    return a.end != b.end ? a.end < b.end : a.at < b.at;
}

}  // namespace

std::vector<uint32_t> sorted_order(const int64_t* first, const int64_t* second, const int64_t* start, const int64_t* end,
                                   size_t rows) {
    bool sorted = true;
    for (size_t i = 1; i < rows && sorted; ++i) {
        const Pair a{first ? first[i - 1] : 0, second ? second[i - 1] : 0};
        const Pair b{first ? first[i] : 0, second ? second[i] : 0};
        sorted = a < b || (a == b && (start[i - 1] < start[i] || (start[i - 1] == start[i] && end[i - 1] <= end[i])));
    }
    if (sorted) return {};
    std::vector<uint32_t> rank(rows), order(rows);
    const std::vector<size_t> size = rank_groups(first, second, rows, rank);
    std::vector<size_t> next(size.size(), 0);
    for (size_t g = 1; g < size.size(); ++g) next[g] = next[g - 1] + size[g - 1];
    for (size_t i = 0; i < rows; ++i) order[next[rank[i]]++] = static_cast<uint32_t>(i);
    std::vector<uint32_t>().swap(rank);
    std::vector<Row> group;
    for (size_t g = 0, begin = 0; g < size.size(); begin += size[g++]) {
        const auto row_at = [&](size_t i) {
            const uint32_t row = order[begin + i];
            return Row{start[row], end[row], row};
        };
        bool in_order = true;
        for (size_t i = 1; i < size[g] && in_order; ++i) in_order = !earlier(row_at(i), row_at(i - 1));
        if (in_order) continue;
        group.resize(size[g]);
        for (size_t i = 0; i < size[g]; ++i) group[i] = row_at(i);
        std::sort(group.begin(), group.end(), earlier);
        for (size_t i = 0; i < size[g]; ++i) order[begin + i] = group[i].at;
    }
    return order;
}

namespace {

template <class HostTable>
void sort_table(HostTable& table) {
    const std::vector<uint32_t> order = sorted_order(table.process.data(), table.thread.data(), table.start.data(),
                                                     table.end.data(), table.rows());
    for (AnyColumn* column : table.columns) column->permute(order);
}

}  // namespace

void Rows::sort() {
    sort_table(host_ops);
    sort_table(api_calls);
    sort_table(named_launches);
    sort_table(ranges);
    sort_table(frames);
    std::vector<int64_t> device(device_ops.device.data(), device_ops.device.data() + device_ops.rows());
    const std::vector<uint32_t> order =
        sorted_order(device.data(), nullptr, device_ops.start.data(), device_ops.end.data(), device_ops.rows());
    for (AnyColumn* column : device_ops.columns) column->permute(order);
}

std::vector<Table*> Rows::all() {
    return {&host_ops, &api_calls, &named_launches, &device_ops, &ranges,  &frames, &overheads,
            &syncs,    &memory_events, &threads, &comms, &spans};
}

}  // namespace timesink
