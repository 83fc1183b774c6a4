"""Text and audio that are spoken while they still arrive."""
