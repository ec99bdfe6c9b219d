"""Edits of a program's source that make a change of the table of fixes, each where its pattern proves it safe."""
