"""The prompts of a call: their queue, their audio, and their events."""
