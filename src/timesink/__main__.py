"""`python -m timesink`: the same as the command."""

from timesink.cli.app import main

main()
