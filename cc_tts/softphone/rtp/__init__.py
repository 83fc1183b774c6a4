"""RTP and RTCP (RFC 3550) of a phone."""
