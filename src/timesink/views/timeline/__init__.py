"""What a browser draws over time: lanes of the whole capture, where findings show in it, and flame graphs."""
