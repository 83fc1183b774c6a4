"""The control API: how a prompt comes in."""
