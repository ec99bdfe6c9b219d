"""Changes switched on and off in a running program, and what each wins: the measured side of the table of fixes."""
