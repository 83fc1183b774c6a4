"""Handlers by which a call is handed over."""
