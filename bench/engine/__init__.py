"""Benches of the neural engine."""
