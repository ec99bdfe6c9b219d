"""What runs inside the profiled program. Standard library, and torch where the program itself has imported it."""
