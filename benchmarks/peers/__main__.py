"""Make the environments of the peers."""

from benchmarks.peers import make

raise SystemExit(make())
