"""Copies of SIP messages: a ring for each call, and HEP to a capture server."""
