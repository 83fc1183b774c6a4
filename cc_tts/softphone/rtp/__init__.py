"""RTP and RTCP (RFC 3550), as a phone sends and receives them."""
