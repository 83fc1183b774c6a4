"""Relays to applications: their connections, and the requests that begin and end them."""
