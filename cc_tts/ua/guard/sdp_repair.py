"""Repairs a session description so that PJMEDIA parses it, and answers it as its sender means it. Gateways write an empty
subject or none, names in ``o=`` with blanks, and formats without a description. No pjsua2 here.
"""

import re
from collections.abc import Iterator
from typing import Final

_FIRST_DYNAMIC: Final = 96
"""Payload types from here on are defined by their ``a=rtpmap`` (RFC 3551 §3)."""
_USUAL_PTIME_MS: Final = 20  # unmeasured
_ORIGIN: Final = re.compile(r"o=\S+ \d{1,19} \d{1,19} IN IP[46] \S+ *")
"""PJMEDIA takes no number above 2^64, though they may have any number of digits (RFC 8866 §5.2)."""
_MEDIA: Final = re.compile(r"(m=\S+) (\S+) (\S+) (.*)")
_MAPPED: Final = re.compile(r"a=rtpmap:(\d{1,3}) ")
_EVENTS: Final = re.compile(r"a=rtpmap:(\d{1,3}) +telephone-event(?:/0*)? *", re.IGNORECASE)
"""Telephone events without a rate: FreeSWITCH writes 0 in the re-INVITEs of ``sofia recover``. They use the rate of the
audio.
"""
_OURS: Final = re.compile(r"a=rtpmap:[089] +(.*)")
"""These are PCMU, PCMA and G.722, which need no ``a=rtpmap`` (RFC 3551 §6)."""
_ENCODING: Final = re.compile(r"[\w.+-]{1,64}/[1-9]\d{0,5}(?:/[1-9]\d?)? *", re.ASCII)
_LENGTH: Final = re.compile(r" *\d{1,5}(?:\.\d*)? *")
_VALUES: Final = {"ptime": _LENGTH, "maxptime": _LENGTH, "rtcp": re.compile(r"\d{1,5}(?: IN IP[46] \S+)? *")}
"""An attribute of these names with another value says nothing, and may be left out (RFC 8866 §6.4, RFC 3605 §2.1)."""
_PTIME: Final = re.compile(r"a=(max)?ptime: *(\d{1,4})\b.*")


def repaired(sdp: str) -> str:
    """Return the description for PJSIP: ``sdp`` itself if nothing has to change."""
    if not sdp.startswith("v="):
        return sdp
    lines = re.split(r"\r\n|\n|\r", sdp.rstrip("\r\n"))
    begins = [index for index, line in enumerate(lines) if line.startswith("m=")]
    parts = [lines[begin:end] for begin, end in zip([0, *begins], [*begins, len(lines)], strict=True)]
    new = [*_head(parts[0])]
    for part in parts[1:]:
        new += _media(part)
    return sdp if new == lines else "".join(f"{line}\r\n" for line in new)


def _head(lines: list[str]) -> Iterator[str]:
    """Return the version, an origin and a subject, which are mandatory (RFC 8866 §5), and the rest."""
    origin = next((line for line in lines if line.startswith("o=")), "")
    subject = next((line for line in lines if line.startswith("s=")), "")
    yield lines[0]
    # PJMEDIA does nothing with it
    yield origin if _ORIGIN.fullmatch(origin) else "o=- 0 0 IN IP4 0.0.0.0"
    yield subject if subject[2:].strip() else "s=-"
    yield from (line for line in lines[1:] if line[:2] not in ("o=", "s="))


def _media(lines: list[str]) -> Iterator[str]:
    """Return an m-line without the formats that nothing describes, and its lines, with a ``ptime`` that its ``maxptime``
    allows.
    """
    yield _without_unknown(lines)
    times = {bool(match[1]): int(match[2]) for line in lines if (match := _PTIME.fullmatch(line))}
    most_ms = times.get(True, 0)
    is_exceeded = 0 < most_ms < times.get(False, _USUAL_PTIME_MS)
    for line in filter(None, map(_format, lines[1:])):
        if not (is_exceeded and line.startswith("a=ptime:")):
            yield line
    if is_exceeded:
        yield f"a=ptime:{most_ms}"


def _format(line: str) -> str:
    """Return the line, with a rate for telephone events that have none; empty if it describes one of our formats wrongly."""
    if match := _EVENTS.fullmatch(line):
        return f"a=rtpmap:{match[1]} telephone-event/8000"
    name, _, value = line.removeprefix("a=").partition(":")
    if (pattern := _VALUES.get(name)) and not pattern.fullmatch(value):
        return ""
    match = _OURS.fullmatch(line)
    return "" if match and not _ENCODING.fullmatch(match[1]) else line


def _without_unknown(lines: list[str]) -> str:
    match = _MEDIA.fullmatch(lines[0])
    if match is None or match[2].partition("/")[0] == "0":
        return lines[0]
    mapped = {found[1] for line in lines if (found := _MAPPED.match(line))}
    formats = match[4].split()
    known = [each for each in formats if not each.isdigit() or int(each) < _FIRST_DYNAMIC or each in mapped]
    if not known:
        return f"{match[1]} 0 {match[3]} {match[4]}"
    return lines[0] if known == formats else f"{match[1]} {match[2]} {match[3]} {' '.join(known)}"
