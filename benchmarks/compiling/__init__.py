"""Programs that compile: one habit each, broken and fixed; and training loops with one slow step."""
