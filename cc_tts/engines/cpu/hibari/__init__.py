"""The voices of hibari, small and of English (Apache-2.0)."""
