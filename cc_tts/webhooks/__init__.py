"""Webhooks: events to web applications by HTTP, as Standard Webhooks. They are signed, in order for each call, and repeated
until they are accepted.
"""
