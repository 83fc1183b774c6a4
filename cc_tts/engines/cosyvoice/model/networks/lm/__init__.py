"""The language model: text tokens to speech tokens (§3)."""
