"""Configuration: its schema, how it is read, and the TLS files that it names."""
