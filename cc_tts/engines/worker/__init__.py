"""The boundary between the server process and the engine's workers, one process for each device."""
