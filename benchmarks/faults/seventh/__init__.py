"""The seventh set of planted faults: one transformer of 0.9 billion parameters, split over four GPUs in every way."""
