"""Webhooks in the API: their status, the webhooks that clients name, and answers to ``call.incoming``."""
