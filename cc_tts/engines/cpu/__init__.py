"""Voices on the CPU: hibari, Kokoro and Piper by onnxruntime, and espeak-ng."""
