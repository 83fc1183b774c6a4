"""Copies of SIP messages: a ring buffer for each call, and HEP to a capture server."""
