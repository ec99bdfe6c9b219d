"""Counters of single kernels from a kernel profiler."""
