"""Callers who are handed over: by REFER to somebody else, or by a bridge to another call of ours."""
