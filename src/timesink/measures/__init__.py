"""Measures: pure functions from a trace to a frozen result. They know no threshold and draw nothing."""
