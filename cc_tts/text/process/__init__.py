"""The text process: it prepares the text of prompts, which would hold up the event loop of the server."""
