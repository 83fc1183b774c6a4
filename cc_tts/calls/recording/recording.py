"""A recording of a live call: its request and its progress."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from cc_tts.config.record import RouteRecordConfig
from cc_tts.recorder.info import Consent, RecordingPlan

RecordingState = Literal["waiting", "starting", "recording", "paused", "stopping", "saved", "failed"]
"""A recording that is ``waiting`` has no consent yet and records nothing."""
PauseReason = Literal["request", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest(RouteRecordConfig):
    """A request to record a call. ``None``: the configuration's value, or no limit."""

    recording_id: str | None = None
    upload_url: str | None = None
    client_state: str | None = None


class Recording(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A recording as its server knows it, and as the next server must know it."""

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
    """The part of a recording that the accounting line of its call has."""

    recording_id: str
    consent: Consent
