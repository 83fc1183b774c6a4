"""The keys that callers press, and how they are collected."""
