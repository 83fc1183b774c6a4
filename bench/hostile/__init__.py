"""Hostile traffic: mutated SIP, SDP, RTP, RTCP and REST."""
