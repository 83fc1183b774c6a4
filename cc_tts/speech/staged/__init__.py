"""Prompts that are staged under an id, and the files that recorded announcements come in."""
