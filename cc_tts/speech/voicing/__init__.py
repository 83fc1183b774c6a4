"""The choice of voices for a text, and their loudness."""
