"""Secrets planted in captures of every format, and how many outlive `timesink capture --redact`."""
