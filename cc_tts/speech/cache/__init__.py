"""Prompts that are synthesised once: shared while they are made, then kept in memory and on disk."""
