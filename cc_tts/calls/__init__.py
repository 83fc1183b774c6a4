"""Calls: their states, routing, prompts, events and endings."""
