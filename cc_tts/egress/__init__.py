"""Requests of ours to URLs that others chose: which hosts they may name, and a client that connects nowhere else."""
