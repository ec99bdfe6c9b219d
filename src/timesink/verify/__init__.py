"""Experiments run programs: verify, calibrate, gate, and the ledger of what was predicted and measured."""

from typing import Final

LONGEST_RUN_S: Final = 1800
"""What runs longer is ended, unless a time was given."""
