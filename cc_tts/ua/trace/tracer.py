"""Copies every SIP message that comes and goes: into the ring of its call, and to a capture server by HEP, with what RTCP
reports. Where both are off no module is registered with PJSIP. Runs on: the SIP thread, except :meth:`SipTracer.on_rtcp`.
"""

import contextlib
import functools
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.sections.hep import hep_address
from cc_tts.egress.own_address import own_address_towards
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.guard.c_library import CLibrary, guarded
from cc_tts.ua.guard.limits import address_of
from cc_tts.ua.rtp.intake import Intake
from cc_tts.ua.sip import forwarding
from cc_tts.ua.trace import hep, rtcp
from cc_tts.ua.trace.masking import masked
from cc_tts.ua.trace.ring import TraceRing
from cc_tts.ua.trace.sender import HepSender

_PRIORITY: Final = 7
"""This is before PJSIP_MOD_PRIORITY_TRANSPORT_LAYER (8), which writes what is sent and has read what has come."""
MAX_RTCP: Final = 1000
"""The most RTCP packets between two turns of the SIP thread (unmeasured)."""
QUALITY_INTERVAL: Final = 5
"""One quality report is sent for this many of the UA's own, which come once a second (unmeasured)."""
_VIA: Final = re.compile(rb"^(?:via|v)[ \t]*:\s*SIP\s*/\s*2\.0\s*/\s*(UDP|TCP|TLS)", re.IGNORECASE | re.MULTILINE)
_CSEQ_METHOD: Final = re.compile(rb"^cseq[ \t]*:\s*\d+[ \t]+([A-Za-z]+)", re.IGNORECASE | re.MULTILINE)
_NOT_OF_CALLS: Final = frozenset({b"REGISTER", b"OPTIONS", b"PUBLISH", b"SUBSCRIBE"})
_ANY: Final = frozenset({"0.0.0.0", "::"})

Media = tuple[str, hep.Address, hep.Address]
"""The Call-ID of a leg, and the local and the remote address of its RTCP."""

log = logs.get(__name__)


class SipTracer:
    """Copies the messages of all calls. ``legs`` are the legs of the user agent, by call."""

    def __init__(
        self,
        settings: messages.UaSettings,
        library: CLibrary,
        clock: Clock,
        legs: Mapping[str, Any],
        send: Callable[[Message], None],
    ) -> None:
        self._library = library
        self._clock = clock
        self._legs = legs
        self._report = send
        self._intake: Intake | None = None
        self._rtcp: deque[tuple[int, int, bytes, bool]] = deque(maxlen=MAX_RTCP)
        self._round = 0
        self._streams: dict[int, str] = {}
        """The call of each stream, as of the last time when one was not found."""
        self._is_installed = False
        self._ring: TraceRing | None = None
        self._sender: HepSender | None = None
        self._settings = settings
        self._begin(settings)

    def reload(self, settings: messages.UaSettings) -> None:
        before, now = self._settings.sip, settings.sip
        self._settings = settings
        if (before.hep, before.trace_messages) == (now.hep, now.trace_messages):
            return
        if before.trace_messages != now.trace_messages:
            self._ring = None
        if self._sender is not None and before.hep != now.hep:
            self._sender.close()
            self._sender = None
        self._begin(settings)

    def listen(self, intake: Intake) -> None:
        """Copy the RTCP of all streams here as long as there is a capture server."""
        self._intake = intake
        intake.copy_rtcp(self.on_rtcp if self._sender is not None else None)

    def _begin(self, settings: messages.UaSettings) -> None:
        if self._ring is None and settings.sip.trace_messages:
            self._ring = TraceRing(settings.sip.trace_messages)
        target = hep_address(settings.sip.hep)
        if self._sender is None and target is not None:
            self._sender = HepSender(target)
        if not self._is_installed and (self._ring is not None or self._sender is not None):
            self._is_installed = True
            received = guarded(lambda rdata: self._copy(self._library.received, rdata, is_sent=False), otherwise=False)
            sent = guarded(lambda tdata: self._copy(self._library.sent, tdata, is_sent=True), otherwise=False)
            register = self._library.register_module
            register(b"mod-cc-tts-trace", _PRIORITY, on_request=received, on_response=received, on_sent=sent)
        if self._intake is not None:
            self.listen(self._intake)

    # --- what PJSIP calls --------------------------------------------------------------------------------------------

    def _copy(self, read: Callable[[int], tuple[str, str]], data: int, *, is_sent: bool) -> bool:
        """Copy a message if it is traced. Return false: PJSIP then processes it."""
        if self._ring is None and self._sender is None:
            return False
        address, whole = read(data)
        text = whole.encode("utf-8", "surrogateescape")
        sip_call_id = forwarding.call_id_of(text).decode("utf-8", "replace")
        via = _VIA.search(text)
        transport = via[1].decode().lower() if via else "udp"
        remote = self._remote(address, text)
        message = messages.TracedMessage(
            at_ns=round(self._clock.wall_s() * NS_PER_S),
            is_sent=is_sent,
            transport=transport,
            local=self._local(transport, remote[0]),
            remote=remote,
            text=text,
        )
        method = _CSEQ_METHOD.search(text)
        if self._ring is not None and sip_call_id and not (method and method[1].upper() in _NOT_OF_CALLS):
            self._ring.add(sip_call_id, message)
        if self._sender is not None:
            source, target = (message.local, message.remote) if is_sent else (message.remote, message.local)
            self._send(masked(text), hep.SIP, transport, source, target, sip_call_id, at_ns=message.at_ns)
        return False

    def _send(
        self,
        payload: bytes,
        kind: int,
        transport: str,
        source: hep.Address,
        target: hep.Address,
        sip_call_id: str,
        **more: Any,
    ) -> None:
        assert self._sender is not None
        more.setdefault("at_ns", round(self._clock.wall_s() * NS_PER_S))
        try:
            packet = hep.packet(
                payload,
                kind=kind,
                transport=transport,
                source=source,
                target=target,
                capture_id=self._settings.sip.hep_capture_id,
                correlation_id=sip_call_id,
                **more,
            )
        except ValueError:
            packet = None
        self._sender.send(packet)

    def _remote(self, address: str, text: bytes) -> hep.Address:
        """Return the far side's address; behind the dispatcher the one in its Via."""
        if address == self._library.dispatcher and (back := forwarding.returned(text)) is not None:
            return back[1]
        return address_of(address)

    def _local(self, transport: str, remote: str) -> hep.Address:
        sip = self._settings.sip
        port = sip.tls_port if transport == "tls" else self._settings.dispatcher_port or sip.port
        return (_own_address(remote) if sip.host in _ANY else sip.host), port

    # --- what the user agent asks for --------------------------------------------------------------------------------

    def answer(self, asked: messages.SendTrace) -> None:
        kept = [] if self._ring is None else self._ring.messages(asked.sip_call_id)
        bare = tuple(msgspec.structs.replace(each, text=masked(each.text)) for each in kept)
        is_on = self._ring is not None
        self._report(messages.CallTrace(call_id=asked.call_id, serial=asked.serial, messages=bare, is_on=is_on))

    def pass_on(self, message: Message) -> None:
        """Pass on a leg's report. The messages of its Call-ID belong to a call, whose record goes to the capture server at
        its end.
        """
        match message:
            case messages.IncomingCall(sip_call_id=sip_call_id) | messages.CallPlaced(sip_call_id=sip_call_id):
                if self._ring is not None:
                    self._ring.know(sip_call_id)
            case messages.QualityReport(call_id=call_id) if self._sender is not None:
                if not self._round % QUALITY_INTERVAL and (leg := self._legs.get(call_id)) is not None:
                    self._send_figures({"type": "quality"}, hep.QUALITY, call_id, _media_of(leg), message.quality)
            case messages.CallEnded(call_id=call_id) if self._sender is not None:
                leg, local = self._legs.get(call_id), self._local("udp", "127.0.0.1")
                record = {"type": "call", "ended_by": message.ended_by, "sip_code": message.sip_code}
                media = "" if leg is None else leg.dialog[0], local, local
                self._send_figures(record, hep.LOG, call_id, media, message.quality)
        self._report(message)

    def on_rtcp(self, stream: int, packet: bytes, is_sent: bool) -> None:  # noqa: FBT001 - a callback
        """Handle a received or sent RTCP packet. Runs on: PJMEDIA's I/O thread, or the media clock's."""
        self._rtcp.append((stream, round(self._clock.wall_s() * NS_PER_S), packet, is_sent))

    def tick(self) -> None:
        """Send what RTCP has reported since the last turn."""
        while self._rtcp:
            stream, at_ns, packet, is_sent = self._rtcp.popleft()
            media, report = self._find_media(stream), rtcp.as_json(packet)
            if self._sender is not None and media is not None and report is not None:
                sip_call_id, local, remote = media
                source, target = (local, remote) if is_sent else (remote, local)
                self._send(report, hep.RTCP, "udp", source, target, sip_call_id, at_ns=at_ns)

    def _send_figures(
        self, record: dict[str, Any], kind: int, call_id: str, media: Media | None, quality: Quality
    ) -> None:
        if media is None:
            return
        sip_call_id, local, remote = media
        record |= {"call_id": call_id, "sip_call_id": sip_call_id, "quality": msgspec.to_builtins(quality)}
        figures = {"mos": quality.mos, "jitter_ms": quality.jitter_ms}
        self._send(msgspec.json.encode(record), kind, "udp", local, remote, sip_call_id, **figures)

    def _find_media(self, stream: int) -> Media | None:
        """Return the media of the leg with this stream."""
        leg = self._legs.get(self._streams.get(stream, ""))
        if leg is None or leg.media.stream != stream:
            # a stream that has ended sends its BYE yet; another call's may be at its address by then
            legs = self._legs.items()
            ended = {each.media.latest_stream: call_id for call_id, each in legs}
            self._streams = ended | {each.media.stream: call_id for call_id, each in legs if each.media.stream}
            leg = self._legs.get(self._streams.get(stream, ""))
        return None if leg is None else _media_of(leg)

    def report_counts(self) -> None:
        """Report how many packets were sent and dropped since the last time, if there were any."""
        self._round += 1
        sent, dropped = self._sender.take_counts() if self._sender is not None else (0, 0)
        if sent or dropped:
            self._report(messages.HepCounts(sent=sent, dropped=dropped))


def _media_of(leg: Any) -> Media | None:
    """Return the media of a leg; ``None`` while its addresses are unknown."""
    addresses = leg.media.rtcp_addresses if leg.media.latest_stream else None
    return None if addresses is None else (leg.dialog[0], address_of(addresses[0]), address_of(addresses[1]))


@functools.lru_cache(256)
def _own_address(remote: str) -> str:
    """Return the local address towards a host."""
    with contextlib.suppress(OSError):
        return own_address_towards(remote)
    return remote
