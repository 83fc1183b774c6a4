"""Who speaks."""
