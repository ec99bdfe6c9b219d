"""Rules about a device that does nothing, and who keeps it waiting."""
