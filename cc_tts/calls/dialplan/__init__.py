"""Headers of an INVITE by which a dialplan asks for more than a prompt."""
