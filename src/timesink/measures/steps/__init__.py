"""Steps: where they begin and end, what is in them, which stand apart."""
