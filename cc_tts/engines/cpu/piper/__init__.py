"""Piper voices: their models, and the pinyin that Chinese ones read."""
