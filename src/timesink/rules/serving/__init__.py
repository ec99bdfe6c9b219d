"""Rules about serving engines: hosts that are late, prompts that block, small batches, copied caches."""
