"""The reports of a call for a collector (RFC 6035 §4.6), application/vq-rtcpxr. No I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cc_tts.audio import PTIME_MS
from cc_tts.media.quality import VoipMetrics
from cc_tts.ua.quality.xr import GMIN
from cc_tts.ua.sip import payload_types
from cc_tts.ua.sip.uri import destination
from cc_tts.ua.trace.masking import masked

EVENT: Final = "vq-rtcpxr"
CONTENT_TYPE: Final = "application/vq-rtcpxr"
_PERCENT: Final = 100
_NOBODY: Final = "sip:anonymous@anonymous.invalid"
"""This stands for a party that is no URI (RFC 3323 §4.1.1.3)."""
_MAX_TAG_CHARS: Final = 256
"""A dialog with a longer tag is left out: the far side chooses its tag, and PJSIP sends 4,000 bytes at most (unmeasured)."""
_UNSAFE: Final = re.compile(r"[^!-~]|[<>]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A call up to ``until_s``. Parties are SIP URIs, addresses host and port; ``tags`` and ``ssrcs`` are ours and the far
    side's, 0 for a source that is not known. Instants are seconds since the Unix epoch.
    """

    sip_call_id: str
    tags: tuple[str, str]
    local: str
    remote: str
    is_incoming: bool
    addresses: tuple[tuple[str, int], tuple[str, int]]
    ssrcs: tuple[int, int]
    began_s: float
    until_s: float
    codec: str
    clock_rate_hz: int
    heard: VoipMetrics
    jitter_ms: float | None
    told: VoipMetrics | None


def body(facts: Facts, *, is_over: bool) -> str:
    """Return the report of a session that is over, or of one that is up, without what is masked in traces. Either is about
    the call from its beginning, as the metrics are (RFC 3611 §4.7.1).
    """
    lines = [
        "VQSessionReport: CallTerm" if is_over else "VQIntervalReport",
        *_parties(facts),
        "LocalMetrics:",
        *_metrics(facts, facts.heard, facts.jitter_ms),
    ]
    if facts.told is not None:
        lines += ["RemoteMetrics:", *_metrics(facts, facts.told, None)]
    ours, theirs = facts.tags
    if ours and theirs and max(map(len, facts.tags)) <= _MAX_TAG_CHARS:
        to_tag, from_tag = (ours, theirs) if facts.is_incoming else (theirs, ours)
        lines.append(f"DialogID:{facts.sip_call_id};to-tag={to_tag};from-tag={from_tag}")
    return "".join(f"{line}\r\n" for line in lines)


def _parties(facts: Facts) -> Iterator[str]:
    local, remote = _bare(facts.local), _bare(facts.remote)
    yield f"CallID:{facts.sip_call_id}"
    yield f"LocalID:<{local}>"
    yield f"RemoteID:<{remote}>"
    yield f"OrigID:<{remote if facts.is_incoming else local}>"
    for name, (host, port), ssrc in zip(("Local", "Remote"), facts.addresses, facts.ssrcs, strict=True):
        yield f"{name}Addr:IP={host} PORT={port} SSRC=0x{ssrc:08x}"
    yield f"LocalGroup:{destination(local) or '-'}"
    yield f"RemoteGroup:{destination(remote) or '-'}"


def _metrics(facts: Facts, metrics: VoipMetrics, jitter_ms: float | None) -> Iterator[str]:
    yield f"Timestamps:START={_date(facts.began_s)} STOP={_date(facts.until_s)}"
    yield _line(
        "SessionDesc",
        PT=payload_types.STATIC.get(facts.codec),
        PD=facts.codec,
        SR=facts.clock_rate_hz,
        FD=PTIME_MS,
        PPS=1000 // PTIME_MS,
        PLC=3,
        SSUP="off",
    )
    yield _line("JitterBuffer", JBA=3, JBN=metrics.jitter_buffer_ms, JBM=metrics.jitter_buffer_max_ms)
    yield _line("PacketLoss", NLR=_percent(metrics.loss_rate), JDR=_percent(metrics.discard_rate))
    yield _line(
        "BurstGapLoss",
        BLD=_percent(metrics.burst_density),
        BD=metrics.burst_ms,
        GLD=_percent(metrics.gap_density),
        GD=metrics.gap_ms,
        GMIN=GMIN,
    )
    yield _line(
        "Delay",
        RTD=metrics.round_trip_ms,
        ESD=metrics.end_system_delay_ms,
        IAJ=None if jitter_ms is None else round(jitter_ms),
    )
    if (metrics.signal_dbm, metrics.noise_dbm, metrics.echo_return_loss_db) != (None, None, None):
        yield _line("Signal", SL=metrics.signal_dbm, NL=metrics.noise_dbm, RERL=metrics.echo_return_loss_db)
    if (metrics.r_factor, metrics.mos_lq, metrics.mos_cq) != (None, None, None):
        yield _line("QualityEst", RCQ=metrics.r_factor, MOSLQ=_score(metrics.mos_lq), MOSCQ=_score(metrics.mos_cq))


def _line(name: str, **values: object) -> str:
    return f"{name}:" + " ".join(f"{key}={value}" for key, value in values.items() if value is not None)


def _percent(share: float) -> str:
    return f"{_PERCENT * share:.1f}"


def _score(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bare(uri: str) -> str:
    """Return a URI without headers, and with asterisks in place of its secrets."""
    bare = masked(_UNSAFE.sub("", uri.partition("?")[0]).encode()).decode()
    return bare if bare.lower().startswith(("sip:", "sips:")) else _NOBODY
