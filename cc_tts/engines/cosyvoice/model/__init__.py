"""A model directory and what is in it."""
