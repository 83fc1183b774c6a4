"""How processes are started, watched, and spoken to."""
