"""cc-tts: a SIP user agent that says, in a natural voice, what REST or the dialplan asks for."""

__version__ = "0.1.0"
