"""Deepgram's text to speech: ``/v1/speak`` of its Aura models and ``/v2/speak`` of its Flux models."""
