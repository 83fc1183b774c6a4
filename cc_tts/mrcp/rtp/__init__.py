"""RTP of the MRCP process: packets, their timing, and their ports."""
