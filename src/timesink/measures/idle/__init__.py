"""Idle time of a device: every gap cut into stretches of one cause, and what each cause costs a step."""
