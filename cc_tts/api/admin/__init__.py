"""Operators ask this of the server process: how it is, its tenants, a reload, what it logs."""
