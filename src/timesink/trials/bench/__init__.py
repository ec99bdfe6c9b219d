"""Operators by themselves, as a trace recorded them and as a change would have them, timed in a child process.

Operands are random normal numbers of the recorded shapes, strides and types; whole numbers are zeros. Each form of an
operator is timed with operands that the GPU's cache holds (warm) and with so many copies of them that it cannot (cold).
"""
