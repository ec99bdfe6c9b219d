// Passes over columns in order of time: where values stand in them, and unions, shares and holders of intervals.
//
// Questions of a trace mostly come in the order of their answers, so each search begins where the one before it ended and
// takes steps of doubling length from there; questions in any other order are answered as well, in logarithmic time.
#pragma once

#include <initializer_list>
#include <memory>

#include "replay.h"

namespace timesink {

using RowNumbers = std::span<const int32_t>;

struct Intervals {
    Numbers start, end;
};

// Disjoint intervals [start, end) of several groups, in order of group and start.
struct Grouped {
    View group, start, end;
};

// Of each group of rows, which are intervals of items: how many, of how many different items, first start, last end, length of their union.
struct Totals {
    Numbers count, items, first, last, covered;
};

// Rows by what they hold, numbered in the order in which it comes first; and the row in which it does.
struct Numbered {
    Numbers number, first;
};

// For each row whether its code is known to mean yes; and the first row of each code of which nothing is known.
struct LookedUp {
    std::unique_ptr<uint8_t[]> yes;
    Numbers unknown;
};

// `known` has 1 (yes), 0 (no) or -1 for each code; nothing is known of those beyond it.
LookedUp looked_up(std::span<const uint32_t> codes, std::span<const int8_t> known);

// Throws std::invalid_argument where columns differ in length, as each of those below does.
void check_same(std::initializer_list<size_t> sizes);

Numbers places(View sorted, View wanted, bool after_equals);
Numbers first_places(View wanted, View known);
Numbered numbered(std::span<const View> columns);
Numbers summed(View group, View value, int64_t groups);
Intervals merged(View start, View end);
Intervals united(View start, View end, View other_start, View other_end);
Intervals shared(View start, View end, View other_start, View other_end);
Numbers covered(View start, View end, View from, View until);
Totals totals(RowNumbers group, RowNumbers row, RowNumbers item, View start, View end, int64_t groups);
Numbers holding(const Grouped& segments, View group, View time);
Intervals overlapping(const Grouped& segments, const Grouped& windows);
Numbers innermost_at(View order, View parent, View start, View end, View time);

}  // namespace timesink
