"""Parameters of headers of an INVITE, the recording that one asks for, and which trunk places a call."""
