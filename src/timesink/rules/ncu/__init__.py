"""Rules about single kernels, from a kernel profiler's counters."""
