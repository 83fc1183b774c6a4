"""Scheduling, without PyTorch."""
