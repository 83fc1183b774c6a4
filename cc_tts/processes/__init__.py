"""Child processes: how they are started, watched, and spoken to."""
