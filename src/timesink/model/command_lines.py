"""Command lines that a profiler recorded, made fit to show; the same is done to those a capture stores."""

from timesink.masking import redacted as redacted
