"""Text and audio that clients send into calls while it is played."""
