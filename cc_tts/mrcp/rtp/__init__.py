"""RTP of the MRCP process: packets, their pace, and the ports that they are sent from."""
