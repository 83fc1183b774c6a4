"""Tenants: what each of them uses, may use, and is charged for."""
