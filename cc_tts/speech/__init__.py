"""A call's text becomes PCM at the line's rate here: engine, resampler, shared synthesis and the prompt cache."""
