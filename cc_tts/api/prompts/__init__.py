"""Staged prompts over HTTP."""
