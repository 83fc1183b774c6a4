"""Offers of SRTP that pjsua would answer wrongly, refused with 488 before it sees them (RFC 4568 §7.1.2, RFC 3261 §21.4.26),
and answers that it would take without using what they say (RFC 4568 §7.1.3).

With SRTP on, pjsua 2.15 and 2.17 end the process over an offer of DTLS-SRTP (``UDP/TLS/RTP/SAVP``), answer 406 where no key
can be used, and ignore a master key index or the lack of encryption, so that nothing would be heard. Inside a call they take
more keys than they have room for. Runs on: the SIP thread.
"""

import binascii
import re
from typing import Final

CRYPTO_SUITES: Final = ("AES_CM_128_HMAC_SHA1_80", "AES_256_CM_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32")
"""The suites in order of preference. Everybody has the first (RFC 4568 §6.2.1); the second is of RFC 6188."""
_KEY_BYTES: Final = {name: 46 if "256" in name else 30 for name in CRYPTO_SUITES}
"""The bytes of the master key and the salt together (RFC 4568 §6.1, RFC 6188 §2)."""
MAX_KEYS: Final = 32
"""The most keys of one m-line. PJMEDIA has room for 64 tags and does not count."""
_PROFILES: Final = ("RTP/AVP", "RTP/AVPF", "RTP/SAVP", "RTP/SAVPF")
"""The transports of an m-line that are served."""
_CRYPTO: Final = re.compile(r"\d{1,9} +(\S+) +inline:([^|; ]*)(\|[^ ]*)?((?: .*)?)")
_LIFETIME: Final = re.compile(r"\|(2\^\d{1,2}|\d{1,15})")
_HARMLESS: Final = re.compile(r"( +WSH=\d+)* *")
"""The only parameter of §6.3 that need not be understood: a hint about the replay window."""


def fault_of(sdp: str) -> str:
    """Return why an SDP cannot be served, in words for a SIP header; empty if it can, or if there is none."""
    for profile, keys in _audio_lines(sdp):
        if profile not in _PROFILES:
            return "Audio by RTP/AVP or RTP/SAVP only, keys by a=crypto"
        if fault := _keys_fault(keys, needed="SAVP" in profile):
            return fault
    return ""


def without_keys(sdp: str) -> str:
    return re.sub(r"^a=crypto:.*(?:\r\n?|\n|\Z)", "", sdp, flags=re.MULTILINE)


def _audio_lines(sdp: str) -> list[tuple[str, list[str]]]:
    """Return the profile and the ``a=crypto`` values of each m-line of audio that is not switched off."""
    found: list[tuple[str, list[str]]] = []
    keys: list[str] = []
    for line in re.split(r"[\r\n]+", sdp):
        if line.startswith("m="):
            fields = line[2:].split()
            keys = []
            if len(fields) > 2 and fields[0].lower() == "audio" and fields[1] != "0":  # noqa: PLR2004 - formats follow
                found.append((fields[2].upper(), keys))
        elif line.lower().startswith("a=crypto:"):
            keys.append(line[len("a=crypto:") :].strip())
    return found


def _keys_fault(keys: list[str], *, needed: bool) -> str:
    """Check the key that PJMEDIA would use: the first of a known suite, after no malformed one, and with no tag twice."""
    if len(keys) > MAX_KEYS:
        return f"More than {MAX_KEYS} a=crypto"
    if len({key.partition(" ")[0] for key in keys}) < len(keys):
        return "Two a=crypto of one tag"
    for key in keys:
        match = _CRYPTO.fullmatch(key)
        if match is None:
            return "An a=crypto is malformed"
        if match[1].upper() in _KEY_BYTES:
            return _key_fault(*match.groups(default=""))
    return "No a=crypto of a suite that is served" if needed else ""


def _key_fault(suite: str, text: str, more: str, parameters: str) -> str:
    size = _KEY_BYTES[suite.upper()]
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, or a string that is not ASCII
        return "The key of an a=crypto is not base64"
    if len(data) != size:
        return f"The key of an a=crypto is not of {size} bytes"
    if more and not _LIFETIME.fullmatch(more):
        return "No master key index and no second key is served"
    if not _HARMLESS.fullmatch(parameters):
        return "No parameter of a=crypto but WSH is served"
    return ""
