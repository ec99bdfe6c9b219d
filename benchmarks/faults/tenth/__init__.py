"""The tenth set: jobs of two ranks, one of them late in as many ways as scripts have; loops of one GPU; no marks."""
