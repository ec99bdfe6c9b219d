"""Text, JSON, files and secrets that nobody vouches for."""
