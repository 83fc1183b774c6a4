"""Events to clients: what each type says, how they are numbered, kept for a while and handed to readers."""
