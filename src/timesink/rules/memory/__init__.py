"""Rules about what holds GPU memory, and what makes it run out."""
