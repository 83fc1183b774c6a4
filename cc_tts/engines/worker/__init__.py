"""The boundary between the server process and the engine's worker: one process a device."""
