"""Spans for OpenTelemetry. Nothing of it is imported or kept unless traces are configured."""
