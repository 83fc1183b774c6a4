"""Several servers as one service: the messages between a server and the pool, and the server's side of them."""
