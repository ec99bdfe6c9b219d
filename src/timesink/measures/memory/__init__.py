"""Memory: lifetimes, classes, phases, the allocator and its ledger."""
