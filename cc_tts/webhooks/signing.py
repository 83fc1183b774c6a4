"""Signatures of Standard Webhooks, version 1: HMAC-SHA256 over id, time of the attempt and body."""

import base64
import hashlib
import hmac
from collections.abc import Iterable


def headers(keys: Iterable[bytes], *, event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that a receiver verifies; without a key there is no signature."""
    signed = b"%s.%d.%s" % (event_id.encode(), at_s, body)
    signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    found = {"webhook-id": event_id, "webhook-timestamp": str(at_s)}
    if signatures:
        found["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return found
