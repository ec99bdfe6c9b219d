"""The rules, in a file or folder per topic: `rules/<topic>/<name>.md` is the page of a rule, and its cases."""
