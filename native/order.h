// The order of rows by group, start and end: groups are few and each is nearly sorted, which a general sort cannot know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace timesink {

// Row order by (group, start, end), where `first` and `second` (each may be null) make the group; empty if already so.
std::vector<uint32_t> sorted_order(const int64_t* first, const int64_t* second, const int64_t* start, const int64_t* end,
                                   size_t rows);

}  // namespace timesink
