"""CosyVoice2-0.5B: text tokens become speech tokens, a mel spectrogram and 24 kHz PCM."""
