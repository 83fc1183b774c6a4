"""Staged prompts, which have an id, and the audio files of recorded announcements."""
