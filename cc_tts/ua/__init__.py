"""The user agent process, which speaks SIP and RTP, and the server's client of it."""
