"""Rules about the profiler itself."""
