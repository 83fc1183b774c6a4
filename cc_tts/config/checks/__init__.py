"""Checks of configuration values that must be consistent with each other: a function yields a sentence for each fault. The
schema checks each value alone.
"""
