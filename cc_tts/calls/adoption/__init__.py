"""Calls that were up when another server ended: what is kept of them, and how they are taken up."""
