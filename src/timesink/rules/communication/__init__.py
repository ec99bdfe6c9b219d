"""Rules about communication between GPUs."""
