"""Voices on the CPU: hibari and Piper by onnxruntime, and espeak-ng."""
