"""The facts of a recording, and the plan by which it is written."""

from typing import Final, Literal

import msgspec

from cc_tts.audio import PTIME_MS
from cc_tts.config.record import Channels, Encoding, Tracks

Consent = Literal["not_asked", "required", "given", "refused"]
"""``required``: it is asked for, and nothing is recorded until it is given."""
FileState = Literal["recording", "saved", "failed"]
Ending = Literal[
    "stopped",
    "key",
    "max_duration",
    "silence",
    "call_ended",
    "user_agent_died",
    "recovered",
    "consent_refused",
    "no_consent",
    "disk_full",
    "storage_error",
]
"""Why a recording has ended; ``recovered``: the process that wrote it had died, and the file was completed later."""

MAX_GAPS: Final = 100
"""The most gaps that are listed; all count in ``lost_ms`` (unmeasured)."""
FRAMES_A_SECOND: Final = 1000 // PTIME_MS


class Gap(msgspec.Struct, frozen=True):
    """Silence in a file in place of audio that could not be kept: its start in the file, and its length."""

    at_ms: int
    duration_ms: int


class RecordingInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recording as its file of JSON has it. ``duration_ms``, ``num_bytes`` and ``lost_ms`` are those of the WAV file:
    ``lost_ms`` is silence in place of audio that came while the disk did not keep up, ``gaps`` says where. ``is_told``: its
    last event was sent. ``disclosed_at_s``: when the caller had heard that a machine speaks.
    """

    recording_id: str
    call_id: str
    tenant: str = ""
    client_state: str | None = None
    channels: Channels = "mono"
    tracks: Tracks = "both"
    encoding: Encoding = "ulaw"
    rate_hz: int = 8000
    consent: Consent = "not_asked"
    created_at_s: float = 0.0
    upload_url: str | None = None
    state: FileState = "recording"
    reason: Ending | None = None
    duration_ms: int = 0
    num_bytes: int = 0
    lost_ms: int = 0
    gaps: tuple[Gap, ...] = ()
    is_told: bool = False
    disclosed_at_s: float | None = None


class RecordingPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recording, its file, and its limits. ``folder`` exists; the id is the name of the file."""

    info: RecordingInfo
    folder: str
    max_duration_ms: int
    silence_timeout_ms: int | None = None
    trim_silence: bool = False
    beep: bool = False
    min_free_bytes: int = 0

    @property
    def comes_encoded(self) -> bool:
        """Whether the recorder gets µ-law, half as many bytes, since it need not add or measure samples."""
        adds = self.info.channels == "mono" and self.info.tracks == "both"
        measures = self.trim_silence or self.silence_timeout_ms is not None
        return self.info.encoding == "ulaw" and not (adds or measures)
