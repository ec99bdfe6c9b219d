"""The tenth set: jobs of two ranks of which one is late, and programs of one GPU."""
