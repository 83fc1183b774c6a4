"""Figures of a conversation: what a caller does, and how soon the application or the caller knows."""
