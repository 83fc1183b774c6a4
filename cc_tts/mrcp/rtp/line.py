"""The RTP of one session: plays the audio of its synthesiser, frame by frame.

::

    SpeechAudio ─▸ write ─▸ PlayoutBuffer ─▸ tick, every 20 ms ─▸ codec ─▸ packet ─▸ the client
                                               └─ all was heard, and the silence behind it ─▸ on_played

Packets are sent while a request is spoken or paused, silence where there is nothing to play, and none between requests: the
timestamp goes on by the clock, and the first packet after a pause has the marker bit (RFC 3551 §4.1).
Runs on: the event loop.
"""

import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cc_tts.audio import PTIME_MS, PTIME_NS, AudioFormat
from cc_tts.clock import Clock
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import PlayoutEvent, PlayoutFinished, PlayoutProgress
from cc_tts.mrcp.rtp.codecs import Codec

MAX_BUFFERED_MS: Final = 30_000
"""The server sends at most ``playout.window_ms`` ahead, and a jump may overlap with audio that is on its way. Unmeasured."""
EXPEDITED_FORWARDING: Final = 0xB8
"""The traffic class of voice (RFC 4594 §4.1), as the octet of the IP header."""
_HEADER: Final = struct.Struct(">BBHII")
_VERSION: Final = 0x80
_MARKER: Final = 0x80


@dataclass(frozen=True, slots=True)
class RtpTarget:
    """The destination and codec of RTP. Without ``is_active`` the client does not want audio now."""

    address: str
    port: int
    codec: Codec
    is_active: bool = True


class RtpLine:
    """The line. ``tell_progress`` gets how much was played and how much waits, in ms; ``on_played`` is called when all was
    played, with the reason if no packet could be sent; ``on_begun`` when there is something to play.
    """

    def __init__(
        self,
        sock: socket.socket,
        clock: Clock,
        *,
        complete_delay_ms: int,
        start_threshold_ms: int,
        tell_progress: Callable[[int, float, float], None],
        on_played: Callable[[str], None],
        on_begun: Callable[[], None],
    ) -> None:
        sock.settimeout(0)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EXPEDITED_FORWARDING)
        self._sock = sock
        self._clock = clock
        self._num_silent = max(1, -(-complete_delay_ms // PTIME_MS))  # not 0: a mark at the end is reported first
        self._start_threshold_ms = start_threshold_ms
        self._tell_progress = tell_progress
        self._on_played = on_played
        self._on_begun = on_begun
        self.target: RtpTarget | None = None
        """Where packets go from now on. Another sample rate applies to later speeches."""
        self._format = AudioFormat(8000)
        self._events: list[PlayoutEvent] = []
        self._buffer: PlayoutBuffer | None = None
        self._speech_id = 0
        self._utterance = ""
        self._num_begun = 0
        self._at_ms = 0.0
        self._played_ms = 0.0
        self._written_ms = 0.0
        self._is_fading = False
        """Whether the next frame fades out the cut audio."""
        self._silence_left: int | None = None
        """Frames of silence until the request is complete; ``None`` until all of it was played."""
        self._ssrc = secrets.randbits(32)
        self._sequence = secrets.randbits(16)
        self._timestamp = secrets.randbits(32)
        self._last_ns: int | None = None
        self._num_before = 0
        self._unsent = ""
        """Why the last packet that failed could not be sent."""
        self.num_packets = 0
        """The number of sent packets."""

    @property
    def port(self) -> int:
        port: int = self._sock.getsockname()[1]
        return port

    @property
    def rate_hz(self) -> int | None:
        """The sample rate; ``None`` until a codec is agreed."""
        return None if self.target is None else self.target.codec.rate_hz

    @property
    def spoken_rate_hz(self) -> int:
        """The sample rate of the speech, known even before a codec is agreed."""
        return self._format.rate_hz

    @property
    def is_busy(self) -> bool:
        return bool(self._utterance) or self._is_fading

    @property
    def played_ms(self) -> float:
        return self._at_ms + self._played_ms

    # --- what the synthesiser plays ----------------------------------------------------------------------------------------

    def begin(self, speech_id: int, at_ms: float = 0.0) -> None:
        """Play this speech from now on; its audio begins ``at_ms`` into it."""
        rate_hz = self.rate_hz or self._format.rate_hz
        if self._buffer is None or self._format.rate_hz != rate_hz:
            self._format = AudioFormat(rate_hz)
            self._buffer = PlayoutBuffer(self._format, max_buffered_ms=MAX_BUFFERED_MS, events=self._events.append)
        self._num_begun += 1
        self._speech_id, self._utterance = speech_id, f"{speech_id}/{self._num_begun}"
        self._at_ms, self._played_ms, self._written_ms, self._silence_left = at_ms, 0.0, 0.0, None
        self._num_before, self._unsent = self.num_packets, ""
        self._buffer.begin(self._utterance, self._start_threshold_ms)
        self._on_begun()

    def write(self, pcm: bytes) -> None:
        """Add audio of the current speech. Raises ``PlayoutOverflow`` if it is more than the server should send."""
        if self._buffer is not None and self._utterance:
            self._buffer.write(self._utterance, pcm)
            self._written_ms += self._format.ms_for_bytes(len(pcm))

    def finish(self) -> None:
        if self._buffer is not None and self._utterance:
            self._buffer.finish(self._utterance)

    def cut(self) -> None:
        if self._buffer is not None and self._utterance:
            self._buffer.cut(self._utterance)
            head = self._buffer.head
            self._is_fading = head is not None and head[0] == self._utterance and head[1] > 0
            if not self._is_fading:  # nothing of it was heard; perhaps no tick follows that would remove it
                self._buffer.end_cut(self._clock.now_ns())
                self._events.clear()
        self._utterance, self._silence_left = "", None

    def fail(self, reason: str) -> None:
        """Give up the current speech, if there is one: no frame of it can be made any more."""
        is_speaking = bool(self._utterance)
        self.cut()
        if is_speaking:
            self._on_played(reason)

    def pause(self) -> None:
        if self._buffer is not None:
            self._buffer.pause()

    def resume(self) -> None:
        if self._buffer is not None:
            self._buffer.resume()

    def close(self) -> None:
        """Free the port, and stop sending."""
        self._utterance, self._is_fading = "", False
        self._sock.close()

    # --- the clock ---------------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        self._is_fading = False
        if self._buffer is None:
            return
        frame = self._buffer.read_frame(now_ns)
        self._send(frame, now_ns)
        events = tuple(self._events)
        self._events.clear()
        for each in events:
            self._note(each)
        if self._silence_left is None:
            return
        if self._silence_left:
            self._silence_left -= 1
        else:
            self._silence_left, self._utterance = None, ""
            self._on_played("" if self.num_packets > self._num_before else self._unsent)

    def _note(self, event: PlayoutEvent) -> None:
        if event.utterance_id != self._utterance or not isinstance(event, PlayoutProgress | PlayoutFinished):
            return
        self._played_ms = event.played_ms
        self._tell_progress(self._speech_id, self.played_ms, self._written_ms - self._played_ms)
        if isinstance(event, PlayoutFinished) and event.cause == "drained":
            self._silence_left = self._num_silent

    def _send(self, frame: bytes, now_ns: int) -> None:
        target = self.target
        num_samples = self._format.samples_for_ms(PTIME_MS)
        is_first = self._last_ns is None or now_ns - self._last_ns > 2 * PTIME_NS
        if is_first and self._last_ns is not None:
            missed = (now_ns - self._last_ns) // PTIME_NS - 1
            self._timestamp += missed * num_samples
        self._last_ns = now_ns
        self._timestamp = (self._timestamp + num_samples) & 0xFFFFFFFF
        if target is None or not target.is_active or target.codec.rate_hz != self._format.rate_hz:
            return
        self._sequence = (self._sequence + 1) & 0xFFFF
        marker = _MARKER if is_first else 0
        head = _HEADER.pack(_VERSION, target.codec.payload_type | marker, self._sequence, self._timestamp, self._ssrc)
        try:
            self._sock.sendto(head + target.codec.encode(frame), (target.address, target.port))
        except OSError as error:  # counts as a lost packet, unless every packet fails
            self._unsent = error.strerror or type(error).__name__
        else:
            self.num_packets += 1
