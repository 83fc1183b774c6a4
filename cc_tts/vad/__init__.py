"""Voice activity detection: whether the caller of a leg speaks."""
