"""Speech for telephone platforms, which ask for one text at a time or send those of a call."""
