"""Text chunks become PCM."""
