"""Speech for telephone platforms, which request one text at a time or stream the texts of a call."""
