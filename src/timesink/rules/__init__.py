"""One file per rule, in a folder per topic: `rules/<topic>/<name>.py`, its cases beside it."""
