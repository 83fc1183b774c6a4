"""Recordings over the API."""
