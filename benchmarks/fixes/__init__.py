"""Programs with known faults, traps that look like faults, and programs with several faults, for `timesink fix`."""
