"""What the caller says and what we send, as audio, to those who listen to the call."""
