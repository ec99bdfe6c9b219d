"""Commands that compare runs: verify, gate, calibrate, baseline, ledger."""
