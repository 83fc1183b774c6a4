"""Calls, as tracing systems show them."""
