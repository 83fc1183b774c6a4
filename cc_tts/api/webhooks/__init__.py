"""Webhooks at the API: how they are doing, what clients may name, and what a webhook answers to an incoming call."""
