"""The prompts of a call: how they queue, become audio and are reported."""
