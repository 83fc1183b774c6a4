"""Events over HTTP: as WebSocket frames, as server-sent events, and the document that describes them."""
