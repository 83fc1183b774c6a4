"""A recording of a call that is up: what was asked for, and how far it is."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from cc_tts.config.record import RouteRecordConfig
from cc_tts.recorder.info import Consent, RecordingPlan

RecordingState = Literal["waiting", "starting", "recording", "paused", "stopping", "saved", "failed"]
"""A recording that is ``waiting`` has no consent yet, and records nothing."""
PauseReason = Literal["request", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest(RouteRecordConfig):
    """A request to record a call; ``None``: as the configuration has it, or without a limit."""

    recording_id: str | None = None
    upload_url: str | None = None
    client_state: str | None = None


class Recording(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A recording as its server knows it, and as the next one has to."""

    plan: RecordingPlan
    state: RecordingState = "starting"
    finish_on_key: str = ""
    pauses: list[PauseReason] = []

    @property
    def id(self) -> str:
        return self.plan.info.recording_id

    @property
    def consent(self) -> Consent:
        return self.plan.info.consent


class RecordingStamp(msgspec.Struct, frozen=True):
    """The accounting line of a call has this of each recording."""

    recording_id: str
    consent: Consent
