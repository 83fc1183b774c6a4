"""The networks of CosyVoice2, as plain modules whose names are those of the published state dicts."""
