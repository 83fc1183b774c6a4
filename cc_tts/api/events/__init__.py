"""Events over HTTP: as WebSocket messages, as server-sent events, and their AsyncAPI document."""
