"""How well voices are understood on a telephone line."""
