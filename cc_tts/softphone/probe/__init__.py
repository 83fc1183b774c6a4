"""``cc-tts call --probe``: a caller who measures what callers feel of an agent behind any SIP address."""
