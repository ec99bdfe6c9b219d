"""Kernels of a step: classes, attainable time, and patterns a change would shorten."""
