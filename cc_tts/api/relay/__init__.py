"""Relays: the connections to their applications, and the requests that begin and end them."""
