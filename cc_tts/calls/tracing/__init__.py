"""Spans of calls for tracing systems."""
