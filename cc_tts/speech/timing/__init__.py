"""The times at which words are heard."""
