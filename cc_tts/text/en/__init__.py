"""English as it is spoken on the telephone."""
