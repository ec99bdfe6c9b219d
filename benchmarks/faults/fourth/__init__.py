"""The fourth set: causes that are a habit or a setting rather than a slow kernel."""
