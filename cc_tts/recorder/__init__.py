"""Recordings of calls: the process that writes them, and what is on the disk."""
