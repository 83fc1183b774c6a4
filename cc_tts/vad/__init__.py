"""Voice activity detection: when the caller of a leg speaks."""
