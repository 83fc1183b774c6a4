"""The settings of single sections, where these have rules of their own."""
