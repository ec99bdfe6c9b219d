"""Pairs with a known cause: one program before and after one change, run twice."""
