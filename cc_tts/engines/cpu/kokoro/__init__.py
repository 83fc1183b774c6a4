"""Kokoro-82M on the CPU: one model for voices of eight languages, 24 kHz (Apache-2.0)."""
