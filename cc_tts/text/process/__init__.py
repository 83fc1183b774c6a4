"""The text process prepares the text of prompts, which would delay the server's event loop."""
