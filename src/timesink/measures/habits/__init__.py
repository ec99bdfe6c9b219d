"""What a step does that it need not do: work done twice, debugging that stayed on, loops that a list replaces."""
