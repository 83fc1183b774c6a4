"""Bodies and responses of the routes for recordings."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from cc_tts.api import schemas, views
from cc_tts.calls.recording.recording import Recording as LiveRecording
from cc_tts.calls.recording.recording import RecordingState, RecordRequest
from cc_tts.config.record import MAX_RECORDING_MS, MIN_RECORDING_MS, Channels, Encoding, Tracks, WantedConsent
from cc_tts.recorder.info import Consent, Gap, RecordingInfo

DurationMs = Annotated[int, Meta(ge=MIN_RECORDING_MS, le=MAX_RECORDING_MS)]


class Record(schemas.OptionalBody, frozen=True):
    """How to record a call. The body may be left out."""

    recording_id: schemas.Id | None = None
    channels: Annotated[
        Channels, Meta(description="mono: both directions mixed; dual: the caller left, what we send right.")
    ] = "mono"
    tracks: Annotated[Tracks, Meta(description="With mono: one direction alone.")] = "both"
    format: Literal["wav"] = "wav"
    encoding: Annotated[Encoding | None, Meta(description="Of the samples; config: record.format.")] = None
    max_duration_ms: Annotated[DurationMs | None, Meta(description="At most record.max_duration_s of the config.")] = (
        None
    )
    silence_timeout_ms: Annotated[
        DurationMs | None, Meta(description="It ends after this much silence, also at its beginning.")
    ] = None
    finish_on_key: Annotated[schemas.FinishKeys, Meta(description="Keys of the caller that end it.")] = ""
    beep: Annotated[
        bool, Meta(description="Half a second of 1400 Hz every 15 s, which the caller hears and the recording has.")
    ] = False
    trim_silence: Annotated[bool, Meta(description="Cut silence off its beginning and end.")] = False
    consent: Annotated[
        WantedConsent | None,
        Meta(
            description="required: nothing is recorded before …/record/consent. given: the caller has agreed already. "
            "Left out: as record.consent_required of the config says."
        ),
    ] = None
    upload_url: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)] | None,
        Meta(description="The file is sent there by PUT once it is complete; https, a host of record.upload_hosts."),
    ] = None
    client_state: schemas.ClientState | None = None

    def request(self) -> RecordRequest:
        """Return the request for the calls layer.

        Raises:
            Unprocessable: two tracks are wanted of one direction.
        """
        is_half_of_two = self.channels == "dual" and self.tracks != "both"
        schemas.refuse("/tracks", "one direction alone needs channels = mono", when=is_half_of_two)
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "format"}
        return RecordRequest(**fields)


class PauseRecording(schemas.OptionalBody, frozen=True):
    """Whether the pause is left out of the file."""

    skip: Annotated[bool, Meta(description="Leave the pause out of the file; else silence is in its place.")] = False


class ConsentToRecording(schemas.Body, frozen=True):
    """Whether the caller agrees to be recorded."""

    given: bool


class Recording(views.View, frozen=True, kw_only=True):
    """A recording. ``duration_ms`` and ``bytes`` are null until it is complete."""

    derived: ClassVar[Mapping[str, Any]] = {
        "duration_ms": lambda info: None if info.state == "recording" else info.duration_ms,
        "bytes": lambda info: None if info.state == "recording" else info.num_bytes,
        "tenant": lambda info: info.tenant or UNSET,
    }
    id: str = field(name="recording_id")
    call_id: str
    state: RecordingState
    reason: Annotated[str | None, Meta(description="Why it is over, or failed.")]
    channels: Channels
    tracks: Tracks
    encoding: Encoding
    rate_hz: int
    consent: Consent
    created_at_s: views.EpochSeconds = field(name="created_at")
    duration_ms: int | None
    bytes: int | None
    lost_ms: Annotated[int, Meta(description="Silence in place of audio that the disk was too slow for.")]
    gaps: Annotated[tuple[Gap, ...], Meta(description="Where that silence is in the file.")]
    disclosed_at_s: Annotated[
        float | None, Meta(description="When the caller had heard that a machine speaks, seconds since the Unix epoch.")
    ] = field(name="disclosed_at")
    client_state: str | None
    tenant: Annotated[str | UnsetType, Meta(description="Whose call it is; left out if it is no tenant's.")] = UNSET

    @classmethod
    def live(cls, recording: LiveRecording) -> Self:
        return cls.on_disk(recording.plan.info, state=recording.state)

    @classmethod
    def on_disk(cls, info: RecordingInfo, *, state: RecordingState | None = None) -> Self:
        """Return a recording from its file; ``state`` overrides the file's."""
        return cls.of(info, id=info.recording_id, state=state or info.state)


class Recordings(msgspec.Struct, frozen=True):
    """The recordings that are kept, newest first."""

    recordings: list[Recording]
