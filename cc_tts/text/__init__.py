"""Text becomes speakable chunks.

Runs on: any thread; what keeps state belongs to one text and says so.
"""
