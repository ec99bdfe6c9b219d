"""Fifth set: jobs of two ranks on two GPUs, captured without marks."""
