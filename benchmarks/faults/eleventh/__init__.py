"""The eleventh set: one GPU, loops that search, answer, simulate and learn to learn; planted lines say `# cause`."""
