#include "sweeps.h"

#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

namespace timesink {

void check_same(std::initializer_list<size_t> sizes) {
    for (const size_t size : sizes)
        if (size != *sizes.begin()) throw std::invalid_argument("columns differ in length");
}

namespace {

constexpr size_t few = 16;  // so many ascending runs are searched one after another

// Differences and sums of times as NumPy makes them: beyond 64 bits they begin anew.
int64_t minus(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
int64_t plus(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

// The first of `size` places that does not go before what is wanted; looked for around `at`.
template <class GoesBefore>
size_t gallop(size_t size, size_t at, GoesBefore&& goes_before) {
    size_t low = 0, high = size, step = 1;
    if (at < size && goes_before(at)) {
        for (low = at + 1; low + step - 1 < size && goes_before(low + step - 1); step *= 2) low += step;
        high = std::min(size, low + step - 1);
    } else {
        for (high = at; high >= step && !goes_before(high - step); step *= 2) high -= step;
        low = high >= step ? high - step + 1 : 0;
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (goes_before(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void add(Intervals& made, int64_t start, int64_t end) {  // after all that were added before it, which it may touch
    if (end <= start) return;
    if (!made.end.empty() && start <= made.end.back()) {
        made.end.back() = std::max(made.end.back(), end);
    } else {
        made.start.push_back(start);
        made.end.push_back(end);
    }
}

// Neighbouring values in ascending order, as calls of one thread have their numbers; `at` is where one was looked for.
struct Run {
    size_t begin, size, at;
};

std::vector<Run> ascending(View values) {  // no more runs than are of use
    std::vector<Run> runs;
    for (size_t i = 0; i < values.size() && runs.size() <= few; ++i) {
        if (i == 0 || values[i] < values[i - 1]) runs.push_back({i, 0, 0});
        ++runs.back().size;
    }
    return runs;
}

uint64_t chance() {
    std::random_device source;
    return static_cast<uint64_t>(source()) << 32 | source();
}

Numbers first_in(std::vector<Run>& runs, View wanted, View known) {
    Numbers made(wanted.size(), -1);
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i] < 0) continue;
        for (auto& [begin, size, at] : runs) {
            at = gallop(size, at, [&](size_t place) { return known[begin + place] < wanted[i]; });
            if (at == size || known[begin + at] != wanted[i]) continue;
            made[i] = static_cast<int64_t>(begin + at);
            break;
        }
    }
    return made;
}

}  // namespace

Numbers places(View sorted, View wanted, bool after_equals) {
    Numbers made(wanted.size());
    size_t at = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const int64_t value = wanted[i];
        at = after_equals ? gallop(sorted.size(), at, [&](size_t place) { return sorted[place] <= value; })
                          : gallop(sorted.size(), at, [&](size_t place) { return sorted[place] < value; });
        made[i] = static_cast<int64_t>(at);
    }
    return made;
}

Numbers first_places(View wanted, View known) {
    if (auto runs = ascending(known); runs.size() <= few) return first_in(runs, wanted, known);
    Numbers made(wanted.size(), -1);
    std::vector<std::pair<int64_t, int64_t>> first(known.size());
    for (size_t i = 0; i < known.size(); ++i) first[i] = {known[i], static_cast<int64_t>(i)};
    std::sort(first.begin(), first.end());
    for (size_t i = 0; i < wanted.size(); ++i) {
        const auto found = std::lower_bound(first.begin(), first.end(), std::pair{wanted[i], int64_t{0}});
        if (wanted[i] >= 0 && found != first.end() && found->first == wanted[i]) made[i] = found->second;
    }
    return made;
}

Numbered numbered(std::span<const View> columns) {
    const size_t rows = columns.empty() ? 0 : columns[0].size();
    for (const View& column : columns) check_same({rows, column.size()});
    const auto equal = [&](size_t a, size_t b) {
        return std::all_of(columns.begin(), columns.end(), [&](const View& column) { return column[a] == column[b]; });
    };
    static const uint64_t factor = chance() | 1, seed = chance();  // a file cannot know which of its rows would share a slot
    const auto hash = [&](size_t row) {
        uint64_t mixed = seed;
        for (const View& column : columns) {
            mixed = (mixed ^ static_cast<uint64_t>(column[row])) * factor;
            mixed ^= mixed >> 32;
        }
        return mixed;
    };
    Numbered made{Numbers(rows), {}};
    std::vector<int64_t> slots(64, -1);  // the number in each slot of a table that is at most half full
    const auto slot_of = [&](size_t row) {
        size_t slot = hash(row) & (slots.size() - 1);
        while (slots[slot] >= 0 && !equal(static_cast<size_t>(made.first[static_cast<size_t>(slots[slot])]), row))
            slot = (slot + 1) & (slots.size() - 1);
        return slot;
    };
    for (size_t row = 0; row < rows; ++row) {
        const size_t slot = slot_of(row);
        if (slots[slot] < 0) {
            slots[slot] = static_cast<int64_t>(made.first.size());
            made.first.push_back(static_cast<int64_t>(row));
        }
        made.number[row] = slots[slot];
        if (2 * made.first.size() <= slots.size()) continue;
        slots.assign(2 * slots.size(), -1);
        for (size_t number = 0; number < made.first.size(); ++number)
            slots[slot_of(static_cast<size_t>(made.first[number]))] = static_cast<int64_t>(number);
    }
    return made;
}

Numbers summed(View group, View value, int64_t groups) {
    check_same({group.size(), value.size()});
    Numbers made(static_cast<size_t>(std::max<int64_t>(groups, 0)), 0);
    for (size_t i = 0; i < group.size(); ++i) {
        if (group[i] < 0 || group[i] >= groups) throw std::invalid_argument("a group has no such number");
        int64_t& total = made[static_cast<size_t>(group[i])];
        total = plus(total, value[i]);
    }
    return made;
}

// Sorts what mostly stands in runs, such as ends of nested intervals: short stretches by insertion, and of two sorted ones
// only what overlaps is merged. In any other order they are sorted as any values are.
template <class Value>
void sort_nearly(std::vector<Value>& values) {
    constexpr size_t STRETCH = 32;
    size_t apart = 0;
    for (size_t i = STRETCH; i < values.size(); ++i) apart += values[i] < values[i - STRETCH];
    if (8 * apart > values.size()) return std::sort(values.begin(), values.end());
    const auto at = [&](size_t place) { return values.begin() + static_cast<std::ptrdiff_t>(std::min(place, values.size())); };
    for (size_t low = 0; low < values.size(); low += STRETCH)
        for (auto next = at(low); next != at(low + STRETCH); ++next)
            std::rotate(std::upper_bound(at(low), next, *next), next, next + 1);
    for (size_t width = STRETCH; width < values.size(); width *= 2)
        for (size_t low = 0; low + width < values.size(); low += 2 * width) {
            const auto middle = at(low + width), last = middle - 1;
            if (*middle < *last)
                std::inplace_merge(std::upper_bound(at(low), middle, *middle), middle,
                                   std::lower_bound(middle, at(low + 2 * width), *last));
        }
}

Intervals merged(View start, View end) {
    check_same({start.size(), end.size()});
    Intervals made;
    made.start.reserve(start.size());  // pages that are not written to cost nothing
    made.end.reserve(start.size());
    if (std::is_sorted(start.begin(), start.end())) {
        for (size_t i = 0; i < start.size(); ++i) add(made, start[i], end[i]);
        return made;
    }
    std::vector<std::pair<int64_t, int64_t>> spans(start.size());
    for (size_t i = 0; i < start.size(); ++i) spans[i] = {start[i], end[i]};
    sort_nearly(spans);
    for (const auto& [from, until] : spans) add(made, from, until);
    return made;
}

Intervals united(View start, View end, View other_start, View other_end) {
    check_same({start.size(), end.size()});
    check_same({other_start.size(), other_end.size()});
    Intervals made;
    made.start.reserve(start.size() + other_start.size());
    made.end.reserve(start.size() + other_start.size());
    for (size_t i = 0, j = 0; i < start.size() || j < other_start.size();) {
        if (j == other_start.size() || (i < start.size() && start[i] < other_start[j])) {
            add(made, start[i], end[i]);
            ++i;
        } else {
            add(made, other_start[j], other_end[j]);
            ++j;
        }
    }
    return made;
}

Intervals shared(View start, View end, View other_start, View other_end) {
    check_same({start.size(), end.size()});
    check_same({other_start.size(), other_end.size()});
    Intervals made;
    made.start.reserve(start.size() + other_start.size());
    made.end.reserve(start.size() + other_start.size());
    if (start.empty()) return made;
    size_t low = 0, i = gallop(other_end.size(), 0, [&](size_t place) { return other_end[place] <= start[0]; });
    for (; i < other_start.size() && other_start[i] < end.back(); ++i) {
        low = gallop(end.size(), low, [&](size_t place) { return end[place] <= other_start[i]; });
        for (size_t j = low; j < start.size() && start[j] < other_end[i]; ++j)
            add(made, std::max(start[j], other_start[i]), std::min(end[j], other_end[i]));
    }
    return made;
}

Numbers covered(View start, View end, View from, View until) {
    check_same({start.size(), end.size()});
    check_same({from.size(), until.size()});
    Numbers made(from.size(), 0);
    if (made.empty() || start.empty()) return made;
    // Only intervals around the windows are looked at: whoever asks for a few at a time may hold millions.
    const int64_t least = *std::min_element(from.begin(), from.end());
    const int64_t most = std::max(*std::max_element(until.begin(), until.end()), *std::max_element(from.begin(), from.end()));
    const auto places = std::span(start.begin(), start.end());
    const size_t none = static_cast<size_t>(std::upper_bound(places.begin(), places.end(), least) - places.begin());
    const size_t first = none ? none - 1 : 0;
    const size_t stop = static_cast<size_t>(std::upper_bound(places.begin(), places.end(), most) - places.begin());
    constexpr size_t BLOCK = 64;
    Numbers until_block;  // the length of all intervals before each block of so many
    int64_t length = 0;
    for (size_t i = first; i <= stop; length = i < stop ? plus(length, minus(end[i], start[i])) : 0, ++i)
        if ((i - first) % BLOCK == 0) until_block.push_back(length);
    struct {
        size_t place;
        int64_t length;
    } at[2] = {{first, 0}, {first, 0}};  // of the intervals before the place
    const auto covered_until = [&](int64_t time, auto& reached) {
        const size_t place = gallop(stop, reached.place, [&](size_t i) { return start[i] <= time; });
        if (place < reached.place || place - reached.place > BLOCK)
            reached = {place - (place - first) % BLOCK, until_block[(place - first) / BLOCK]};
        for (; reached.place < place; ++reached.place)
            reached.length = plus(reached.length, minus(end[reached.place], start[reached.place]));
        if (place == first) return int64_t{0};
        return minus(reached.length, minus(std::max(end[place - 1], time), time));
    };
    for (size_t i = 0; i < from.size(); ++i)
        made[i] = minus(covered_until(std::max(from[i], until[i]), at[1]), covered_until(from[i], at[0]));
    return made;
}

Totals totals(RowNumbers group, RowNumbers row, RowNumbers item, View start, View end, int64_t groups) {
    check_same({group.size(), row.size()});
    check_same({item.size(), start.size(), end.size()});
    const size_t size = static_cast<size_t>(std::max<int64_t>(groups, 0));
    std::vector<size_t> first(size + 1, 0);
    std::vector<int32_t> rows(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
        if (group[i] < 0 || group[i] >= groups) throw std::invalid_argument("a group has no such number");
        if (row[i] < 0 || static_cast<size_t>(row[i]) >= start.size()) throw std::invalid_argument("no such row");
        ++first[static_cast<size_t>(group[i]) + 1];
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<size_t> next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < group.size(); ++i) rows[next[static_cast<size_t>(group[i])]++] = row[i];
    const auto at_row = [](View column, int32_t number) { return column[static_cast<size_t>(number)]; };
    const auto sooner = [&](int32_t a, int32_t b) { return at_row(start, a) < at_row(start, b); };
    Totals made{Numbers(size), Numbers(size), Numbers(size), Numbers(size), Numbers(size)};
    std::vector<int32_t> items;
    for (size_t number = 0; number < size; ++number) {
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first[number]);
        const auto last = rows.begin() + static_cast<std::ptrdiff_t>(first[number + 1]);
        if (begin == last) continue;
        if (!std::is_sorted(begin, last, sooner)) std::sort(begin, last, sooner);
        made.count[number] = last - begin;
        made.first[number] = at_row(start, *begin);
        int64_t reach = std::numeric_limits<int64_t>::min(), covered = 0;
        items.clear();
        for (auto at = begin; at != last; ++at) {
            const int64_t from = std::max(at_row(start, *at), reach), until = at_row(end, *at);
            if (until > from) covered = plus(covered, minus(until, from));
            reach = std::max(reach, until);
            items.push_back(item[static_cast<size_t>(*at)]);
        }
        std::sort(items.begin(), items.end());
        made.items[number] = std::unique(items.begin(), items.end()) - items.begin();
        made.last[number] = reach;
        made.covered[number] = covered;
    }
    return made;
}

Numbers holding(const Grouped& segments, View group, View time) {
    const auto& [groups, start, end] = segments;
    check_same({groups.size(), start.size(), end.size()});
    check_same({group.size(), time.size()});
    Numbers made(time.size());
    size_t at = 0;
    for (size_t i = 0; i < time.size(); ++i) {
        at = gallop(start.size(), at, [&](size_t place) {
            return groups[place] < group[i] || (groups[place] == group[i] && start[place] <= time[i]);
        });
        const bool inside = at > 0 && groups[at - 1] == group[i] && end[at - 1] > time[i];
        made[i] = inside ? static_cast<int64_t>(at) - 1 : -1;
    }
    return made;
}

Intervals overlapping(const Grouped& segments, const Grouped& windows) {
    const auto& [groups, start, end] = segments;
    const auto& [wanted, from, until] = windows;
    check_same({groups.size(), start.size(), end.size()});
    check_same({wanted.size(), from.size(), until.size()});
    Intervals made{Numbers(wanted.size()), Numbers(wanted.size())};
    size_t first = 0, last = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        first = gallop(end.size(), first, [&](size_t place) {
            return groups[place] < wanted[i] || (groups[place] == wanted[i] && end[place] <= from[i]);
        });
        last = gallop(start.size(), last, [&](size_t place) {
            return groups[place] < wanted[i] || (groups[place] == wanted[i] && start[place] < until[i]);
        });
        made.start[i] = static_cast<int64_t>(first);
        made.end[i] = static_cast<int64_t>(std::max(first, last));
    }
    return made;
}

Numbers innermost_at(View order, View parent, View start, View end, View time) {
    check_same({parent.size(), start.size(), end.size()});
    const auto is_row = [&](int64_t row) { return row >= 0 && static_cast<size_t>(row) < parent.size(); };
    if (!std::all_of(order.begin(), order.end(), is_row)) throw std::invalid_argument("no such row");
    Numbers made(time.size());
    size_t at = 0;
    for (size_t i = 0; i < time.size(); ++i) {
        at = gallop(order.size(), at, [&](size_t place) { return start[static_cast<size_t>(order[place])] <= time[i]; });
        int64_t row = at > 0 ? order[at - 1] : -1;
        while (is_row(row) && end[static_cast<size_t>(row)] <= time[i]) row = parent[static_cast<size_t>(row)];
        made[i] = row;
    }
    return made;
}

}  // namespace timesink
