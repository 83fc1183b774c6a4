"""Several servers as one service: what a server and the pool tell each other, and the server's side of it."""
