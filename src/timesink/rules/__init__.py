"""One file per rule, in a folder per topic: `rules/<topic>/<name>.py`, its cases in `<name>.cases.md` next to it."""
