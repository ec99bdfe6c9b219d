#include "blame.h"

namespace timesink {

namespace {

struct Cutter {
    const Gaps& gaps;
    Stretches made;

    void add(size_t gap, int64_t start, int64_t end, int64_t cause, int64_t timeline, int64_t thread, int64_t call_row,
             int64_t asked) {
        if (end <= start) return;
        made.gap.push_back(static_cast<int64_t>(gap));
        made.start.push_back(start);
        made.end.push_back(end);
        made.cause.push_back(cause);
        made.timeline.push_back(timeline);
        made.thread.push_back(thread);
        made.call_row.push_back(call_row);
        made.sync_row.push_back(gaps.sync_row[gap]);
        made.asked.push_back(asked);
    }

    // The call that the thread was in, for the stretches `at` of what it did.
    void name_calls(const std::vector<size_t>& at, const Grouped& calls, View row) {
        Numbers timeline, asked;
        for (const size_t place : at) {
            timeline.push_back(made.timeline[place]);
            asked.push_back(made.asked[place]);
        }
        const Numbers held = holding(calls, timeline, asked);
        for (size_t i = 0; i < at.size(); ++i)
            if (held[i] >= 0) made.call_row[at[i]] = row[static_cast<size_t>(held[i])];
    }
};

}  // namespace

Stretches cut(const Gaps& gaps, const Activity& activity, const Causes& causes) {
    const auto& [start, sync_end, host_end, latency_end, call_end, dependency_end, end, timeline, thread, call_row,
                 call_asked, sync_thread, sync_row, sync_asked, dependency_cause, rest_cause] = gaps;
    for (const View column : {sync_end, host_end, latency_end, call_end, dependency_end, end, timeline, thread, call_row,
                              call_asked, sync_thread, sync_row, sync_asked, dependency_cause, rest_cause})
        check_same({start.size(), column.size()});
    const auto& [did, did_thread, did_cause, calls, row] = activity;
    check_same({did.group.size(), did.start.size(), did.end.size(), did_thread.size(), did_cause.size()});
    check_same({calls.group.size(), calls.start.size(), calls.end.size(), row.size()});
    const Intervals within = overlapping(did, {timeline, sync_end, host_end});
    Cutter cutter{gaps, {}};
    auto& [gap, from, until, cause, of, who, call, sync, asked] = cutter.made;
    for (Numbers* column : {&gap, &from, &until, &cause, &of, &who, &call, &sync, &asked}) column->reserve(2 * start.size());
    std::vector<size_t> traced;
    for (size_t i = 0; i < start.size(); ++i) {
        const int64_t line = timeline[i], own = thread[i];
        if (sync_row[i] >= 0)
            cutter.add(i, start[i], sync_end[i], causes.sync, line, sync_thread[i], sync_row[i], sync_asked[i]);
        int64_t at = sync_end[i];
        for (auto j = static_cast<size_t>(within.start[i]); host_end[i] > at && j < static_cast<size_t>(within.end[i]); ++j) {
            const int64_t left = std::max(did.start[j], sync_end[i]), right = std::min(did.end[j], host_end[i]);
            cutter.add(i, at, left, causes.untraced, line, own, -1, at);
            if (right > left) traced.push_back(cutter.made.gap.size());
            cutter.add(i, left, right, did_cause[j], line, did_thread[j], -1, left);
            at = right;
        }
        cutter.add(i, at, host_end[i], causes.untraced, line, own, -1, at);
        cutter.add(i, host_end[i], latency_end[i], causes.latency, line, own, call_row[i], call_asked[i]);
        cutter.add(i, latency_end[i], call_end[i], causes.call, line, own, call_row[i], call_asked[i]);
        cutter.add(i, call_end[i], dependency_end[i], dependency_cause[i], line, -1, -1, call_end[i]);
        cutter.add(i, dependency_end[i], end[i], rest_cause[i], line, -1, -1, dependency_end[i]);
    }
    cutter.name_calls(traced, calls, row);
    return std::move(cutter.made);
}

}  // namespace timesink
