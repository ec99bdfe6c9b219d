// Gaps of a device cut into stretches of one cause each, in order of time: see measures/idle/pieces.py.
#pragma once

#include "sweeps.h"

namespace timesink {

// One entry per gap, in order: the times at which its parts end, each no sooner than the one before, and what they are blamed on.
struct Gaps {
    View start, sync_end, host_end, latency_end, call_end, dependency_end, end;
    View timeline, thread, call_row, call_asked;      // the launch
    View sync_thread, sync_row, sync_asked;           // the wait that drained the device, row -1 for none
    View dependency_cause, rest_cause;
};

// What the threads of a timeline did, and in which row of their calls; disjoint, in order of timeline and start.
struct Activity {
    Grouped did;
    View thread, cause;
    Grouped calls;
    View row;
};

struct Causes {
    int64_t sync, untraced, latency, call;
};

struct Stretches {
    Numbers gap, start, end, cause, timeline, thread, call_row, sync_row, asked;
};

// Throws std::invalid_argument where arrays differ in length.
Stretches cut(const Gaps& gaps, const Activity& activity, const Causes& causes);

}  // namespace timesink
