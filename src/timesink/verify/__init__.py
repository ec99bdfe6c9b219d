"""Experiments run programs: verify, calibrate, gate, and the ledger of what was predicted and measured."""
