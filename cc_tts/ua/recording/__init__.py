"""Frames of recorded legs, on their way to the recorder process."""
