"""PCM between the engine and the 20 ms media clock."""
