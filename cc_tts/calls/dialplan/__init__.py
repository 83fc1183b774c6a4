"""The dialplan: the ``X-TTS-`` headers and the Request-URI of an INVITE, its route, and the trunk that places a call."""
