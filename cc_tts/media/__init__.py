"""PCM and the media clock: playout buffer, G.711, tones, silence."""
