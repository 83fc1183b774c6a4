"""The report of one call, from its events, its utterances and its recordings."""
