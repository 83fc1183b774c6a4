"""Text that clients stream into a call: what they are told, and what becomes of it."""
