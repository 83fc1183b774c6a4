"""The audio of a call, as its clients hear it and send it."""
