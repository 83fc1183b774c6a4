"""The quality of a leg for other systems: RTCP extended reports (RFC 3611), reports to a collector (RFC 6035), levels."""
