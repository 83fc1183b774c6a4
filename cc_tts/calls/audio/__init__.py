"""The audio of a call for those who listen; what the caller's speech does to prompts (barge-in); who answered a call."""
