"""The command line: parse arguments, call, print, choose the exit code."""
