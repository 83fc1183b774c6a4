"""Speech engines: they turn text chunks into PCM."""
