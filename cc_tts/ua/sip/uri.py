"""The SIP URIs that we send requests to. No pjsua2 here."""

import re
from typing import Final
from urllib.parse import unquote

from cc_tts.ua.guard.limits import PeerList

_SIP_URI: Final = re.compile(r"sips?:(?:[^@]*@)?(\[[^\]]*\]|[^:;?\s]*)(?::[0-9]*)?((?:;[^?]*)?)", re.IGNORECASE)


def with_transport(uri: str, transports: tuple[str, ...]) -> str:
    """Return ``uri`` with an available transport, TLS first, if it names none and UDP is not available (RFC 3263 §4.1)."""
    scheme, _, rest = uri.partition(":")
    named = any(each.lower().startswith("transport=") for each in rest.split(";")[1:])
    if named or scheme.lower() == "sips" or "udp" in transports:
        return uri
    return f"{uri};transport={'tls' if 'tls' in transports else 'tcp'}"


def destination(uri: str) -> str:
    """Return the destination of a request, lower case: ``maddr``, else the host (RFC 3261 §19.1.1); empty if it is no SIP
    URI.
    """
    match = _SIP_URI.match(uri)
    return (_parameters(match[2]).get("maddr") or match[1]).lower() if match else ""


def address_of(text: str) -> str:
    """Return scheme, user and host of the first SIP URI in ``text``, lower case; ``text`` if there is none."""
    match = _SIP_URI.search(text)
    return text[match.start() : match.end(1)].rstrip(">").lower() if match else text


def fault_of_target(uri: str, transports: tuple[str, ...]) -> str:
    """Return why no request can be sent to ``uri`` from here, in words; empty if one can."""
    match = _SIP_URI.match(uri)
    if match is None:
        return "write a sip: or sips: URI"
    parameters = _parameters(match[2])
    if ":" in match[1] + parameters.get("maddr", ""):
        return "SIP is spoken over IPv4 only"
    transport = parameters.get("transport", "").lower()
    if uri[:5].lower() == "sips:" and "tls" not in transports:
        return 'sips: needs TLS, and sip.transports has no "tls"'
    if transport and transport not in transports:
        return f"this server has no transport {transport[:16]!r}; sip.transports is {', '.join(transports)}"
    return ""


def is_trusted_target(uri: str, *, peers: PeerList, registrar: str) -> bool:
    """Whether a request to ``uri`` goes to a trusted peer or to the registrar, so that it may assert an identity (RFC 3325
    §6). A name is trusted only if it is the registrar's.
    """
    host = destination(uri)
    if registrar and not re.match("sips?:", registrar, re.IGNORECASE):
        registrar = f"sip:{registrar}"
    return bool(host) and (host in peers or host == destination(registrar))


def may_redirect(first: str, target: str, transports: tuple[str, ...]) -> bool:
    """Whether a call to ``first`` may continue to ``target``, which the far side named: a URI that we can reach, that adds
    no headers to the INVITE (RFC 3261 §19.1.5) and keeps TLS (§26.2.2).
    """
    is_downgrade = first[:5].lower() == "sips:" and target[:5].lower() != "sips:"
    is_reachable = not fault_of_target(target, transports) and with_transport(target, transports) == target
    return is_reachable and "?" not in target and not is_downgrade


def _parameters(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {unquote(name).strip().lower(): unquote(value).strip() for name, _, value in pairs}
