"""Changes to a program that a graph can replay, one class for each kind."""
