"""Rules about habits and settings: work done twice, debugging left on, Python loops, a machine told too much."""
