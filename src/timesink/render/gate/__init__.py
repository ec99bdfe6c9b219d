"""Results of a gate or of a comparison, written for people and for continuous integration."""
