"""Programs with one planted fault each, their measured truth, and the score of timesink's diagnoses against it."""
