"""Runs of a user's program that can change nothing of the user's: on the standard library alone."""
