"""Calls that were up when their server ended: the record that is kept of each, and how the next server adopts them."""
