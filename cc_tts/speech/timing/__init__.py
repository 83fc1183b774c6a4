"""When words are heard."""
