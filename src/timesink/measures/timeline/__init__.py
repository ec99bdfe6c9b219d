"""Device work in time: busy stretches and gaps, who launched it, launches, copies, waits, ranges, and its replay."""
