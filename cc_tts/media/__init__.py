"""PCM meets the beat."""
