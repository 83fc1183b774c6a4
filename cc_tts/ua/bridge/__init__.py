"""Bridges between two legs, whose far sides then hear each other."""
