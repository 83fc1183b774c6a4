"""REFER (RFC 3515): ours to the far side of a leg, and the far side's to us."""
