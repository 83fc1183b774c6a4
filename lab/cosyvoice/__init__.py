"""Small CosyVoice2 networks, and the reference's order of work in plain code."""
