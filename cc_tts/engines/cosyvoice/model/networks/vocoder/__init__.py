"""The vocoder: mel frames to audio (§5)."""
