"""Compilation: summaries, counters, compiled regions and graph breaks."""
