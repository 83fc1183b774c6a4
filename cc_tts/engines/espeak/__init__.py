"""espeak-ng, for every language."""
