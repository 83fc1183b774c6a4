"""A voice of a recording, made in a process of its own."""
