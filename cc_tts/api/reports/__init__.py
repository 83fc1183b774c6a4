"""The report of one call, made of its events, its utterances and its recordings."""
