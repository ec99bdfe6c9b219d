"""Rules on single steps that stand out."""
