"""The path from a call's text to PCM at the line's rate: engine, resampler, shared synthesis and prompt cache."""
