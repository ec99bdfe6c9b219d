"""Rules about streams that wait for each other."""
