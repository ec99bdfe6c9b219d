"""What to change, in which order, and where it ends: changes that people make, priced together."""
