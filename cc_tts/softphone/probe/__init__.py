"""``cc-tts call --probe``: a caller that measures what callers experience with an agent at any SIP address."""
