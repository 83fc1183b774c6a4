"""The media of one leg: its stream, its port on the bridge and its playout buffer. Runs on: the SIP thread, except where a
docstring says otherwise.
"""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pjsua2 as pj

from cc_tts.clock import NS_PER_MS, NS_PER_S, Clock
from cc_tts.config.sections.quality import QualityConfig
from cc_tts.media import playout_events
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.guard.limits import address_of
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.process.call_media import CallMedia, PauseReason
from cc_tts.ua.quality.extended_reports import ExtendedReports
from cc_tts.ua.quality.level_meter import LevelMeter, amplitude_of
from cc_tts.ua.recording.tap import RecordingTap
from cc_tts.ua.rtp.audio_port import AudioPort, CapturePort, PassedFrame, PortPool
from cc_tts.ua.rtp.figures import CallFigures
from cc_tts.ua.rtp.intake import Intake, StreamPackets
from cc_tts.ua.rtp.keys import DtmfKey
from cc_tts.ua.rtp.other_payloads import Decoded
from cc_tts.ua.rtp.source import RtpSourceWatch
from cc_tts.ua.sip import payload_types


@dataclass(frozen=True, slots=True, kw_only=True)
class LegServices:
    """The objects that every leg of a user agent needs. ``before_offer`` gets the present codec of the call; ``place_again``
    sends another INVITE for a leg whose first one was refused; ``on_key`` gets a key of a call.
    """

    settings: messages.UaSettings
    clock: Clock
    library: CLibrary
    ports: PortPool[AudioPort]
    captures: PortPool[CapturePort]
    send: Callable[[Message], None]
    intake: Intake
    follows_rtp: bool
    quality: Callable[[], QualityConfig]
    sink: Any
    """A port of the bridge without a listener: received audio is decoded only for its level."""
    on_over: Callable[[Any], None]
    place_again: Callable[[Any], None]
    before_offer: Callable[[str], None]
    on_key: Callable[[str, DtmfKey], None]


class LegMedia(CallMedia):
    """The RTP of a leg, in both directions, and its reports."""

    def __init__(self, services: LegServices, call: Any, buffer: PlayoutBuffer, *, codecs: Sequence[str]) -> None:
        super().__init__(call.call_id)
        self._services = services
        self._codecs = codecs
        """The codecs of the trunk in their order; empty for all of ours."""
        self._rtp = services.settings.rtp
        # a leg that its own parts refer to is destroyed late, and pjsua2 then hangs up whichever call has its number by then
        self._call: Any = weakref.proxy(call)
        self.buffer = buffer
        self.played_ms = 0.0
        """How much was played of the latest utterance."""
        self.event_type = payload_types.USUAL
        """The payload type of telephone events in our SDP."""
        self.is_clocked = False
        """Whether a stream asks the playout buffer for frames."""
        self.rtp_ports: set[int] = set()
        self.rtp_addresses = ("", "")
        """The local and the remote address of RTP: host and port."""
        self.reports = ExtendedReports(services.intake, services.quality)
        self._meter = LevelMeter()
        self._stream_index = 0
        self._rtcp_addresses: tuple[str, str] | None = None
        self.stream = 0
        """The address of PJMEDIA's stream; 0 while there is none."""
        self.packets = StreamPackets()
        """The packets that came for that stream."""
        self.latest_stream = 0
        """The address of PJMEDIA's stream, or of the last one; 0 before the first."""
        self._port: AudioPort | None = None
        self._heard: PassedFrame | None = None  # of the other leg of a bridge
        self._said: PassedFrame | None = None
        self._capture: CapturePort | None = None
        self._may_be_heard = False
        self._utterance_id, self._underruns = "", 0
        self._figures = CallFigures(call.call_id)
        self._source_watch = RtpSourceWatch(call.call_id, follows_rtp=services.follows_rtp)
        self._is_report_sent = False
        self._expects_rtp = True
        self._received = (-1, 0)  # packets of RTP and of RTCP
        self._last_packet_ns = 0

    @property
    def rtcp_addresses(self) -> tuple[str, str] | None:
        """The local and the remote address of RTCP: host and port; ``None`` while unknown."""
        if self._rtcp_addresses is None:
            with contextlib.suppress(pj.Error):
                info = self._call.getMedTransportInfo(self._stream_index)
                if remote := info.srcRtcpName or info.srcRtpName:
                    self._rtcp_addresses = info.localRtcpName, remote
        return self._rtcp_addresses

    # --- the stream ------------------------------------------------------------------------------------------------

    def answering(self, sdp: str, theirs: str) -> str:
        """Return our session description that answers the far side's."""
        self.event_type = payload_types.event_type(theirs) or self.event_type
        self.reports.described(theirs)
        return self.reports.asking(payload_types.with_codecs(sdp, self._codecs))

    def offering(self, sdp: str) -> str:
        """Return our session description as an offer."""
        sdp = payload_types.with_event_type(sdp, self.event_type)
        return self.reports.asking(payload_types.with_codecs(sdp, self._codecs))

    def open_stream(self, index: int, stream: int) -> None:
        self._stream_index, self._rtcp_addresses = index, None
        self.stream = self.latest_stream = stream
        self.packets = self._services.intake.open(stream)
        if self.is_muted:
            self._services.library.pause_stream(stream, paused=True)
        self._source_watch.new_stream()
        if self._port is not None:
            self._port.expect_a_pause()

    def close_stream(self) -> None:
        """Read the figures of the stream, which is about to be destroyed."""
        self.quality()
        self._figures.stream_ended()
        self._services.intake.close(self.stream)
        self.stream, self.packets = 0, StreamPackets()

    def negotiated(self, held_by: messages.HeldBy, *, expects_rtp: bool) -> str:
        """SDP was negotiated, for the first time or again. Returns why the call must end, empty if it need not."""
        self._expects_rtp = expects_rtp
        fault = self._connect(must=held_by == "none")
        if held_by != self.held_by:
            self.held_by = held_by
            self.set_paused("hold", paused=held_by != "none")
            self._pass_on()
            self._services.send(messages.HoldChanged(call_id=self._call_id, by=held_by))
        self.note_port()
        return fault

    def _connect(self, *, must: bool) -> str:
        """Connect the playout buffer to the conference bridge again, since a re-INVITE may have made a new stream."""
        is_encrypted = self._rtp.srtp != "off" and pj_info.is_encrypted(self._call)
        if self._rtp.srtp == "required" and self.stream and not is_encrypted:
            return "SRTP required"  # a re-INVITE of ours may have been answered with an empty key
        if self._port is None:
            self._port = self._services.ports.lend()
            self._port.lend(self.buffer)
            self._port.record(self._tap, hears=self._capture is None)
            self._pass_on()
            self._listen()
        self.is_clocked = False  # a=inactive leaves no stream: nothing asks for frames, see keep_time()
        if not (self.stream or must):
            return ""
        self._port.startTransmit(self._call.getAudioMedia(-1))
        self.is_clocked = True
        for port in self._receivers:
            self._call.getAudioMedia(-1).startTransmit(port)
        self._open_buffer()
        self._report_active(srtp=is_encrypted)
        return ""

    def _report_active(self, *, srtp: bool) -> None:
        info = self._call.getStreamInfo(self._stream_index)
        decoded = Decoded(info.codecName, int(info.rxPt), int(info.txPt), self.event_type)
        self._services.intake.decode(self.packets, decoded)
        active = messages.MediaActive(
            call_id=self._call_id,
            codec=info.codecName,
            clock_rate_hz=self._rtp.clock_rate_hz,
            srtp=srtp,
            dtmf=self._dtmf_method(),
        )
        self.rtp_addresses = self.rtp_addresses[0], str(info.remoteRtpAddress)
        if active != self.active:
            self.active = active
            self._services.send(active)

    def _dtmf_method(self) -> messages.DtmfMethod | None:
        if self._services.library.takes_events(self.stream):
            return "rfc4733"
        allows = self._call.remoteHasCap(pj.PJSIP_H_ALLOW, "", "INFO")  # the far side's last Allow (RFC 3261 §20.5)
        return "sip_info" if allows == pj.PJSIP_DIALOG_CAP_SUPPORTED else None

    def note_port(self) -> None:
        """Note the port to which the peer sends RTP, for the cooldown."""
        try:
            transport = self._call.getMedTransportInfo(self._stream_index)
        except pj.Error:
            return
        self.rtp_addresses = str(transport.localRtpName), self.rtp_addresses[1]
        if port := address_of(transport.localRtpName)[1]:
            self.rtp_ports.add(port)

    def return_port(self) -> None:
        """Return the port on the bridge, since the call is over or is placed again."""
        self.is_clocked = False
        if self._port is not None:
            self._port.take_back()
            self._services.ports.take_back(self._port)
            self._port = None

    # --- what the far side hears -----------------------------------------------------------------------------------

    def established(self, now_ns: int) -> None:
        """The ACK was received or sent: media flows both ways from now on."""
        self._last_packet_ns = now_ns
        if self.is_muted:
            self.set_muted(muted=False)
        self.set_may_be_heard(may_be_heard=True)

    def set_may_be_heard(self, *, may_be_heard: bool) -> None:
        """Whether the prompts may begin as soon as there is media. Many PBXs connect the caller only with their ACK, and
        earlier audio is not heard.
        """
        self._may_be_heard = may_be_heard
        self._open_buffer()

    def _open_buffer(self) -> None:
        if self._may_be_heard and self._port is not None and not self._is_open:
            self._is_open = True
            self.buffer.open(self._services.clock.now_ns() + self.lead_in_ms * NS_PER_MS)

    def cut(self, utterance_id: str | None) -> None:
        self.buffer.cut(utterance_id)

    def set_paused(self, reason: PauseReason, *, paused: bool, restart: tuple[str, float] | None = None) -> None:
        """Runs on: the SIP thread or the reader thread."""
        if paused:
            self._pause_reasons.add(reason)
        else:
            self._pause_reasons.discard(reason)
        if self._pause_reasons:
            self.buffer.pause()
        else:
            self.buffer.resume(restart=restart)

    @property
    def is_muted(self) -> bool:
        """Whether no RTP is sent, since the call was not acknowledged."""
        return "unacked" in self._pause_reasons

    def set_muted(self, *, muted: bool) -> None:
        self.set_paused("unacked", paused=muted)
        if self.stream:
            self._services.library.pause_stream(self.stream, paused=muted)

    def note_playout(self, event: playout_events.PlayoutEvent) -> None:
        match event:
            case playout_events.PlayoutUnderrun():
                self._underruns += 1
            case playout_events.PlayoutStarted():
                self._utterance_id, self.played_ms = event.utterance_id, 0.0
            case playout_events.PlayoutProgress() | playout_events.PlayoutFinished():
                if event.utterance_id == self._utterance_id:  # ignore one that was cut before it began
                    self.played_ms = event.played_ms

    def keep_time(self, now_ns: int) -> None:
        """Advance the playout buffer's clock while no stream does, so that a cut takes effect on a leg that is held or has
        no media yet.
        """
        frame = self.buffer.read_frame(now_ns)
        if self._port is not None:
            self._port.keep_time(now_ns, frame)

    # --- what the server hears -------------------------------------------------------------------------------------

    def set_listening(self, directions: tuple[messages.AudioDirection, ...]) -> None:
        """Keep the frames of these directions; received audio is decoded with ``in`` only."""
        before = self._receivers
        super().set_listening(directions)
        if self._port is None:
            return  # _connect() follows
        self._listen()
        self._reconnect(before)

    def record(self, tap: RecordingTap | None) -> None:
        before, self._tap = self._receivers, tap
        capture, self._capture = self._capture, None
        if tap is not None:
            with contextlib.suppress(pj.Error):  # without room for another port the leg's own one hears the caller
                self._capture = self._services.captures.lend()
                self._capture.tap = tap
        if self._port is not None:
            self._port.record(tap, hears=self._capture is None)
            self._reconnect(before)
        if capture is not None:
            capture.tap = None
            self._services.captures.take_back(capture)

    def bridge(self, heard: PassedFrame | None, said: PassedFrame | None) -> None:
        """Exchange audio with another leg from the next frame on; ``None`` ends it."""
        before, self._heard, self._said = self._receivers, heard, said
        self._pass_on()
        self._reconnect(before)

    def _pass_on(self) -> None:
        """Send silence to the other leg while this far side is on hold."""
        if self._port is not None:
            self._port.bridge(heard=self._heard if self.held_by == "none" else None, said=self._said)

    @property
    def _receivers(self) -> tuple[Any, ...]:
        """Return the ports that get the caller's audio. Without any, nothing is decoded."""
        is_heard = "in" in self._listened or self._said is not None
        is_heard = is_heard or (self._tap is not None and self._capture is None)
        ports = (self._port if is_heard else None, self._capture)
        found = tuple(port for port in ports if port is not None)
        return found or ((self._services.sink,) if self._meter.is_on else ())

    def _reconnect(self, before: Sequence[Any]) -> None:
        if not self.is_clocked or before == (now := self._receivers):
            return
        with contextlib.suppress(pj.Error):  # the call is over and has no media any more
            media = self._call.getAudioMedia(-1)
            if not before and self.stream:
                self._services.library.drop_received(self.stream)
            for port in set(before) - set(now):
                media.stopTransmit(port)
            for port in set(now) - set(before):
                media.startTransmit(port)

    def _listen(self) -> None:
        assert self._port is not None
        self._port.listen(received=self._listened.get("in"), sent=self._listened.get("out"))

    # --- how loud it is ----------------------------------------------------------------------------------------------

    def measure_levels(self) -> None:
        before = self._receivers
        self._meter.look(self._services.clock.now_ns())
        self._reconnect(before)

    def sample_levels(self, now_ns: int) -> None:
        """Measure a frame of each direction, if somebody asks for levels."""
        if not self._meter.is_on:
            return
        before = self._receivers
        if self._meter.is_over(now_ns):
            self._reconnect(before)
        elif self.is_clocked:
            with contextlib.suppress(pj.Error):  # the call is over and has no media any more
                sent, received = self._services.library.levels(self._call.getAudioMedia(-1).getPortId())
                self._meter.note(received=amplitude_of(received), sent=amplitude_of(sent))

    # --- every second ----------------------------------------------------------------------------------------------

    def quality(self) -> Quality:
        if self._port is not None:
            self._figures.late_frames = self._port.late_frames
        if self.stream:
            self._figures.poll(self._call, self._stream_index)
        return self._figures.quality(underruns=self._underruns, remote=self.reports.told)

    @property
    def waited_ms(self) -> tuple[int, int]:
        """The mean and the longest delay of the jitter buffer; 0 while nobody takes packets out of it."""
        return self._figures.jitter_buffer_ms if self._receivers else (0, 0)

    def watch(self, *, is_established: bool) -> bool:
        """Report the quality; return whether neither RTP nor RTCP has come for too long. A leg on hold is exempt."""
        if self._port is None:
            return False
        quality = self.quality()
        levels = self._meter.take()
        self._services.send(messages.QualityReport(call_id=self._call_id, quality=quality, levels=levels))
        if self.stream:
            self.reports.note(self.packets, quality, jitter_buffer_ms=self.waited_ms)
            if is_established and quality.packets_sent:
                self._send_first_report()
            others = self.packets.others
            num_discarded = self._figures.num_discarded + (others.num_unknown if others is not None else 0)
            self._source_watch.poll(self._call, self._stream_index, num_discarded=num_discarded)
        return self._is_inactive(quality, is_established=is_established)

    def _send_first_report(self) -> None:
        """Send an RTCP report once packets flow. PJMEDIA's first comes after five seconds, and a round trip is measured by
        what answers it (RFC 3550 §6.2: the first report may come at once).
        """
        if not self._is_report_sent:
            self._is_report_sent = True
            self._services.library.send_report(self.stream)

    def _is_inactive(self, quality: Quality, *, is_established: bool) -> bool:
        now_ns = self._services.clock.now_ns()
        received = (quality.packets_received, self.packets.num_rtcp)
        is_exempt = not (is_established and self.held_by == "none" and self._expects_rtp)
        if received != self._received or is_exempt:
            self._received, self._last_packet_ns = received, now_ns
        timeout_s = self._rtp.inactivity_timeout_s
        return bool(timeout_s) and (now_ns - self._last_packet_ns) / NS_PER_S > timeout_s
