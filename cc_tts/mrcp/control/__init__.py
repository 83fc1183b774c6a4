"""The MRCP connections: messages, channels, and the state of a synthesiser."""
