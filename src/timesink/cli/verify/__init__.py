"""Commands that compare runs or captures: verify, calibrate, compare, gate, baseline, ledger."""
