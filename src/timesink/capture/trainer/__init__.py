"""Captures that a training program makes of itself: one line in its profiler, its trainer or its own loop.

Nothing here raises into the training: what cannot be recorded is said in one line on stderr. What takes time (manifest,
diagnosis, report) is the work of another process of low priority.
"""
