"""Plugs: the speech APIs of other vendors, so that their clients can use this server."""
