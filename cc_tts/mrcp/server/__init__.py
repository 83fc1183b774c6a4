"""The server's side of the MRCP process: it has the texts spoken."""
