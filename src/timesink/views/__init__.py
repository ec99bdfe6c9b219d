"""Views: a measure or a diagnosis as plain pages and figures, one file per subject."""
