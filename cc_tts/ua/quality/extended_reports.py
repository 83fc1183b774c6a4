"""The extended reports (RFC 3611) of one leg, and what they say. Runs on: the SIP thread."""

from collections.abc import Callable

from cc_tts.config.sections.quality import QualityConfig
from cc_tts.media.quality import Quality, VoipMetrics
from cc_tts.ua.quality import xr
from cc_tts.ua.quality.heard import Losses
from cc_tts.ua.rtp.intake import Intake


class ExtendedReports:
    """How either side hears the other. ``settings`` are those of now."""

    def __init__(self, intake: Intake, settings: Callable[[], QualityConfig]) -> None:
        self._intake = intake
        self._settings = settings
        self._losses = Losses()
        self._is_wanted = False
        self.heard = VoipMetrics()
        """How we hear the far side, if anybody is told."""
        self.told: VoipMetrics | None = None
        """How the far side says that it hears us."""
        self.ssrcs = (0, 0)
        """Our synchronisation source and that of the far side; 0 for one that is not known."""

    def described(self, sdp: str) -> None:
        """The far side has sent this session description, or a message with it."""
        self._is_wanted = self._is_wanted or xr.is_wanted(sdp)

    def asking(self, sdp: str) -> str:
        """Return our session description as it is to be sent."""
        return xr.asking(sdp) if self._is_wanted or self._settings().rtcp_xr else sdp

    def note(self, stream: int, quality: Quality, *, jitter_buffer_ms: tuple[int, int]) -> None:
        """Take in the figures of the call so far, once a second."""
        self.told = self._intake.told(stream) or self.told
        if not (self._is_wanted or self._settings().collector):
            return
        self._intake.watch_sent()
        self.ssrcs = self._intake.ssrcs(stream) if any(self._intake.ssrcs(stream)) else self.ssrcs
        self._losses.note(quality)
        self.heard = self._losses.metrics(quality, jitter_buffer_ms=jitter_buffer_ms)
        if self._is_wanted:
            self._intake.report(stream, lambda: self.heard)
