"""The twelfth set: one GPU, other kinds of work, four programs with two faults; planted lines say `# cause`."""
