"""The what-if engine: the dependency graph of a trace and its replay with one thing changed."""
