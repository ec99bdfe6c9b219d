"""Reporters render a diagnosis; they compute nothing."""
