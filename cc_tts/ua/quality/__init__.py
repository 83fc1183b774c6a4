"""How a leg sounds, as others are told it: RTCP extended reports (RFC 3611), reports to a collector (RFC 6035), levels."""
