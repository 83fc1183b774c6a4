"""The loop, the agent and the media of calls, which the UA process and the process of lines have in common."""
