"""Ten programs with several faults at once, every change measured alone, in pairs and together."""
