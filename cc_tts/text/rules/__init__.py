"""What each language says for what it writes."""
