"""What names, machines and assumed figures mean, declared once."""
