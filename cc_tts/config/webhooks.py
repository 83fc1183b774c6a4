"""Checks of ``[webhooks]``: URLs, secrets, names. ``check`` asks them."""

import base64
import binascii
from collections.abc import Iterator
from typing import Final

from cc_tts.config.schema import Config, WebhookConfig
from cc_tts.egress.hosts import usable_url

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""The length of a secret (Standard Webhooks, "Signature scheme")."""
PER_CALL: Final = "call"
"""The name of the endpoint that a call has of its own."""


def key_of(secret: str) -> bytes:
    """Return the key that a secret holds; raises ``ValueError`` if it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a secret is {SECRET_PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in base64")
    return key


def url_fault(url: str, *, may_have_user: bool = True) -> str:
    """Return why events cannot be sent there; empty if they can."""
    found = usable_url(url, "http", "https", may_have_user=may_have_user)
    return "is not a URL as in https://app.example.com/events" if found is None else ""


def faults(config: Config) -> Iterator[str]:
    """Yield what is wrong with the endpoints, and with what calls may name."""
    names: set[str] = set()
    for place, each in enumerate(config.webhooks.endpoints, start=1):
        key = f"webhooks[{place - 1}]"
        name = each.name or str(place)
        if name in names or name == PER_CALL:
            yield f"{key}.name: {name!r} is " + ("of the endpoints of calls" if name == PER_CALL else "there twice")
        names.add(name)
        yield from (f"{key}.{fault}" for fault in _endpoint_faults(each))


def _endpoint_faults(endpoint: WebhookConfig) -> Iterator[str]:
    if fault := url_fault(endpoint.url):
        yield f"url {fault}"
    if not endpoint.secrets:
        yield "secret: at least one is needed"
    for secret in endpoint.secrets:
        try:
            key_of(secret)
        except ValueError as error:
            yield f"secret: {error}"
