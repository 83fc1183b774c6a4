"""The reference implementation of CosyVoice 2, one sequence at a time, and what holds the engine against it."""
