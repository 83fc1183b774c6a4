"""Sessions: a SIP dialog, its channel, and its RTP.

::

    INVITE ─▸ begin ─▸ MrcpCall ─▸ answer           MRCP request ─▸ Synthesizer ─▸ messages to the server
                       └─ RtpLine, Synthesizer      messages of the server ─▸ Synthesizer ─▸ RtpLine

Runs on: the event loop.
"""

import asyncio
import itertools
import secrets
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.errors import CapacityExceeded
from cc_tts.mrcp.control.connections import Control
from cc_tts.mrcp.control.states import SynthState
from cc_tts.mrcp.control.synthesizer import RESOURCE, Synthesizer
from cc_tts.mrcp.messages import AboutOne, MrcpSettings, Sessions, SpeechProgress
from cc_tts.mrcp.rtp.codecs import Codec
from cc_tts.mrcp.rtp.line import RtpLine, RtpTarget
from cc_tts.mrcp.rtp.pacer import Pacer
from cc_tts.mrcp.sip import sdp
from cc_tts.mrcp.sip.request import SipRefusal
from cc_tts.mrcp.sip.sdp import OfferedMedia
from cc_tts.mrcp.sip.server import Dialog
from cc_tts.processes.channel import Message

CHECK_S: Final = 1.0
"""The interval of the search for unused sessions and connections (unmeasured)."""

log = logs.get(__name__)

Tell = Callable[[Message, bytes], None]


class MrcpCall:
    """One call. It has at most one synthesiser, as its audio line carries one voice. Raises ``CapacityExceeded`` if there is
    no port for its RTP.
    """

    def __init__(self, calls: "MrcpCalls", dialog: Dialog) -> None:
        self.id = f"mrcp_{secrets.token_hex(8)}"
        self._calls = calls
        self.dialog = dialog
        self._sdp_id = secrets.randbits(31)
        self._version = 0
        self.line = RtpLine(
            calls.open_socket(),
            calls.clock,
            complete_delay_ms=calls.config.complete_delay_ms,
            start_threshold_ms=calls.settings.start_threshold_ms,
            tell_progress=lambda *progress: calls.tell(SpeechProgress(*progress), b""),
            on_played=self._played,
            on_begun=calls.pacer.wake,
        )
        self.channel_id = f"{secrets.token_hex(16)}@{RESOURCE}"
        """The unguessable id of its synthesiser, also of one that is added again after its removal: it begins with the id of
        the session (RFC 6787 §6.2.1), and clients use that of the first channel for the whole session.
        """
        self.synthesizer: Synthesizer | None = None
        self.unconnected_since_s = asyncio.get_running_loop().time()

    def modify(self, offer: str) -> str:
        """Apply a new offer; returns the answer. Raises ``Refusal``, with nothing changed."""
        read = sdp.read(offer)
        if not any(each.is_control for each in read):
            raise SipRefusal(488, "The offer has no m=application line of MRCPv2")
        ports = self._calls.control_ports
        control = next((each for each in read if each.is_our_resource and ports[each.is_tls]), None)
        audio = sdp.audio_of(read, control)
        codec = audio.codec() if audio is not None else None
        if audio is not None and codec is None:
            raise SipRefusal(488, "No codec of PCMU, PCMA, L16/8000 and L16/16000 is offered")
        if any(each.kind == "audio" and each.port for each in read) and audio is None:
            raise SipRefusal(488, "Audio is spoken over RTP/AVP only")
        is_speaking = self.synthesizer is not None and self.synthesizer.state is not SynthState.IDLE
        if codec is not None and is_speaking and codec.rate_hz != self.line.spoken_rate_hz:
            raise SipRefusal(488, "The sample rate stays while a request is spoken")
        self._apply(control, audio, codec)
        self._version += 1
        return sdp.answer(
            read, channel=self.channel_id, address=self._address, sdp_id=self._sdp_id, version=self._version
        )

    @property
    def _address(self) -> str:
        return self._calls.settings.sip.public_address or self.dialog.flow.local_host

    def _apply(self, control: OfferedMedia | None, audio: OfferedMedia | None, codec: Codec | None) -> None:
        """Use these media of an offer, and accept them."""
        self.line.target = None
        if audio is not None and codec is not None:
            audio.accepted_port = self.line.port
            address = audio.address or self.dialog.flow.peer[0]
            self.line.target = RtpTarget(address, audio.port, codec, is_active=audio.is_heard)
        if control is None:
            self._close_channel("released")
            return
        control.accepted_port = self._calls.control_ports[control.is_tls]
        if self.synthesizer is None:
            self.synthesizer = self._open_channel()

    def end(self, reason: str) -> None:
        self._close_channel(reason)
        self.line.close()
        self._calls.over(self, reason)

    def _close_channel(self, reason: str) -> None:
        if self.synthesizer is not None:
            self.synthesizer.close(reason)
            self._calls.control.remove(self.channel_id)
            self.synthesizer = None

    def _open_channel(self) -> Synthesizer:
        calls, channel_id = self._calls, self.channel_id
        synthesizer = Synthesizer(
            channel_id,
            mrcp_call_id=self.id,
            line=self.line,
            tell=calls.tell,
            send=lambda data: calls.control.send(channel_id, data),
            numbers=calls.numbers,
            by_number=calls.by_number,
            clock=calls.clock,
            max_queued=calls.config.max_queued,
        )
        calls.control.add(channel_id, synthesizer.handle)
        return synthesizer

    def _played(self, unsent: str) -> None:
        if unsent:
            log.warning("mrcp_rtp_not_sent", mrcp_call_id=self.id, detail=unsent)
        if self.synthesizer is not None:
            self.synthesizer.on_played(unsent)


class MrcpCalls:
    """All sessions. ``tell`` sends a message to the server; ``is_accepting`` is the last state that the server has sent."""

    def __init__(self, settings: MrcpSettings, control: Control, clock: Clock, tell: Tell) -> None:
        self.settings = settings
        self.config = settings.mrcp
        self.control = control
        self.clock = clock
        self.tell = tell
        self._ports = deque(settings.mrcp.rtp_ports)
        self._sessions: dict[str, MrcpCall] = {}
        self.pacer = Pacer(lambda: [call.line for call in self._sessions.values()], clock)
        self.numbers = itertools.count(1)
        self.by_number: dict[int, Synthesizer] = {}
        """The synthesisers by the numbers of their speeches and lexicons."""
        self.control_ports: Mapping[bool, int] = {False: 0, True: 0}
        """The ports that clients connect to, by whether TLS is spoken there; 0 for none."""
        self.is_accepting = True

    # --- sessions ----------------------------------------------------------------------------------------------------------

    def begin(self, offer: str, dialog: Dialog) -> str:
        """Begin a call from an offer; returns the answer. Raises ``Refusal``."""
        if not self.is_accepting:
            raise self._full("Draining", dialog)
        if len(self._sessions) >= self.config.max_sessions:
            raise self._full("mrcp.max_sessions is reached", dialog)
        try:
            call = MrcpCall(self, dialog)
        except CapacityExceeded as error:
            raise self._full(error.detail, dialog) from None
        try:
            answer = call.modify(offer)
        except SipRefusal:
            call.line.close()
            raise
        dialog.modify, dialog.ended = call.modify, call.end
        self._sessions[call.id] = call
        log.info("mrcp_session", mrcp_call_id=call.id, sip_call_id=dialog.call_id, source=dialog.flow.peer[0])
        self.tell(Sessions(len(self._sessions)), b"")
        return answer

    def open_socket(self) -> socket.socket:
        """Open the port for RTP that has been free longest. Raises ``CapacityExceeded`` if all are in use."""
        for _ in range(len(self._ports)):
            port = self._ports[0]
            self._ports.rotate(-1)
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                sock.bind((self.settings.sip.host, port))
            except OSError:
                sock.close()
                continue
            return sock
        raise CapacityExceeded("all ports of mrcp.rtp_port_min to mrcp.rtp_port_max are in use")

    def _full(self, reason: str, dialog: Dialog) -> SipRefusal:
        source = dialog.flow.peer[0]
        log.warning("mrcp_session_refused", reason=reason, sip_call_id=dialog.call_id, source=source)
        return SipRefusal(503, reason, headers=[("Retry-After", str(self.settings.sip.retry_after_s))])

    def capabilities(self, host: str) -> str:
        """Return a description of the offers that we can accept."""
        ports = self.control_ports
        address = self.settings.sip.public_address or host
        return sdp.capabilities(address=address, has_tls=bool(ports[True]), has_plain=bool(ports[False]))

    def over(self, call: MrcpCall, reason: str) -> None:
        self._sessions.pop(call.id, None)
        log.info("mrcp_session_over", mrcp_call_id=call.id, reason=reason, rtp_packets=call.line.num_packets)
        self.tell(Sessions(len(self._sessions), call.id), b"")

    def take(self, message: AboutOne, payload: bytes) -> None:
        """Handle a message of the server; dropped if its subject is over."""
        if (synthesizer := self.by_number.get(message.number)) is not None:
            synthesizer.take(message, payload)

    # ---------------------------------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """End the sessions whose client has vanished."""
        for call in list(self._sessions.values()):
            if call.synthesizer is not None and self.control.is_connected(call.synthesizer.channel_id):
                call.unconnected_since_s = now_s
            elif now_s - call.unconnected_since_s > self.config.idle_timeout_s:
                call.dialog.hang_up("not_connected")
