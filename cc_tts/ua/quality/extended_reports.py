"""The RTCP extended reports (RFC 3611) of one leg. Runs on: the SIP thread."""

from collections.abc import Callable

from cc_tts.config.sections.quality import QualityConfig
from cc_tts.media.quality import Quality, VoipMetrics
from cc_tts.ua.quality import xr
from cc_tts.ua.quality.heard import Losses
from cc_tts.ua.rtp.intake import Intake, StreamPackets


class ExtendedReports:
    """How each side hears the other. ``settings`` returns the current settings."""

    def __init__(self, intake: Intake, settings: Callable[[], QualityConfig]) -> None:
        self._intake = intake
        self._settings = settings
        self._losses = Losses()
        self._is_wanted = False
        self.heard = VoipMetrics()
        """How we hear the far side, if anybody wants to know."""
        self.told: VoipMetrics | None = None
        """How the far side says that it hears us."""
        self.ssrcs = (0, 0)
        """Our synchronisation source and the far side's; 0 while unknown."""

    def described(self, sdp: str) -> None:
        """Note a session description of the far side, or a message that contains one."""
        self._is_wanted = self._is_wanted or xr.is_wanted(sdp)

    def asking(self, sdp: str) -> str:
        """Return our session description with the request for extended reports, if we ask for them."""
        return xr.asking(sdp) if self._is_wanted or self._settings().rtcp_xr else sdp

    def note(self, packets: StreamPackets, quality: Quality, *, jitter_buffer_ms: tuple[int, int]) -> None:
        """Note the figures of the call so far, once a second."""
        self.told = packets.told or self.told
        if not (self._is_wanted or self._settings().collector):
            return
        self._intake.watch_sent()
        self.ssrcs = packets.ssrcs if any(packets.ssrcs) else self.ssrcs
        self._losses.note(quality)
        self.heard = self._losses.metrics(quality, jitter_buffer_ms=jitter_buffer_ms)
        if self._is_wanted:
            packets.reporter = lambda: self.heard
