"""The UA process: SIP and RTP, and the client side of it."""
