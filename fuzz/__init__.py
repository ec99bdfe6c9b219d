"""Fuzzing: every file timesink reads, mutated from real ones, under invariants. See the README beside this."""
