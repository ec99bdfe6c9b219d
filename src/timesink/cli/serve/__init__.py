"""`timesink serve`: a report on this machine, of a trace too large for one file."""
