"""Text becomes speakable chunks."""
