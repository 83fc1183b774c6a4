"""The audio of a call: who listens to it, barge-in by speech, and whether a person or a machine has answered."""
