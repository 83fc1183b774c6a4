"""How parts of a text are pronounced: lexicons, SSML's replacements, phonemes."""
