"""Clients send text and audio into calls while it is played, by one stream."""
