"""The server's side of the MRCP process: it synthesises the texts."""
