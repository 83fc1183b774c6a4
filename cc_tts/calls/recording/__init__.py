"""Recordings of calls, as the server has them."""
