"""Scripts as people write them, for `timesink try`."""
