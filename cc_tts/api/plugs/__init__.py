"""Speech for other systems, in the messages that their clients know."""
