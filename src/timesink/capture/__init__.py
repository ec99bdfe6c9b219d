"""Drive the profilers. Standard library only, importable inside the profiled program."""
