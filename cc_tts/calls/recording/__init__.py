"""Recordings of calls, on the server's side."""
