"""Idle time of a device and what it waited for."""
