"""Handlers for recordings: of a call that is up, and those that are kept."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import web

from cc_tts import logs
from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.route import CALL_ID, Query, RouteTable
from cc_tts.api.recordings import delivery, shapes
from cc_tts.calls.recording.recording import Recording as LiveRecording
from cc_tts.errors import (
    DuplicateId,
    MalformedRequest,
    RecordingActive,
    RecordingNotFound,
    RecordingOff,
    RecordingStorageFull,
    RecordingsUnreadable,
    WrongState,
)
from cc_tts.recorder.info import RecordingInfo
from cc_tts.recorder.store import RecordingStore

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
"""The most recordings in one page (unmeasured)."""

OF_STORE: Final = (RecordingOff, RecordingsUnreadable)

ROUTES: Final = RouteTable("Recordings")

log = logs.get(__name__)

T = TypeVar("T")


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/record",
    scope="call",
    status=201,
    location="/v1/recordings/",
    errors=(*ON_A_CALL, RecordingActive, DuplicateId, RecordingOff, RecordingStorageFull),
    examples={
        "both sides": {"channels": "dual", "beep": True},
        "voicemail": {"tracks": "caller", "silence_timeout_ms": 5000, "finish_on_key": "#", "trim_silence": True},
        "after consent": {"channels": "dual", "consent": "required", "client_state": "ticket-17"},
    },
)
async def start_recording(request: web.Request, body: shapes.Record) -> shapes.Recording:
    """Record a call; call.recording reports the progress."""
    wanted = body.request()
    if wanted.upload_url is not None:
        delivery.check_url(wanted.upload_url, request.app[CONTEXT].config.record)
    with bodies.located({DuplicateId: "/recording_id"}):
        return shapes.Recording.live(await call_of(request).recorder.start(wanted))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/record/pause",
    scope="call",
    errors=(*ON_A_CALL, RecordingNotFound),
    examples={"leave out": {"skip": True}},
)
async def pause_recording(request: web.Request, body: shapes.PauseRecording) -> shapes.Recording:
    """Record silence until the recording is resumed, or nothing."""
    return shapes.Recording.live(call_of(request).recorder.set_paused(paused=True, skips=body.skip))


@ROUTES.add("POST", "/v1/calls/{id}/record/resume", scope="call", errors=(*ON_A_CALL, RecordingNotFound))
async def resume_recording(request: web.Request) -> shapes.Recording:
    """Resume the recording of a call."""
    return shapes.Recording.live(call_of(request).recorder.set_paused(paused=False))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/record/consent",
    scope="call",
    errors=(*ON_A_CALL, RecordingNotFound),
    examples={"agreed": {"given": True}, "refused": {"given": False}},
)
async def consent_to_recording(request: web.Request, body: shapes.ConsentToRecording) -> shapes.Recording:
    """Say whether the caller agrees to a recording that waits for that."""
    return shapes.Recording.live(call_of(request).recorder.consent(given=body.given))


@ROUTES.add("GET", "/v1/calls/{id}/record", scope="read", errors=(*ON_A_CALL, RecordingNotFound))
async def get_call_recording(request: web.Request) -> shapes.Recording:
    """The recording of a call that runs, or waits for consent."""
    return shapes.Recording.live(call_of(request).recorder.running)


@ROUTES.add("DELETE", "/v1/calls/{id}/record", scope="call", errors=(*ON_A_CALL, RecordingNotFound))
async def stop_recording(request: web.Request) -> shapes.Recording:
    """End the recording of a call, which is kept."""
    return shapes.Recording.live(call_of(request).recorder.stop())


@ROUTES.add(
    "GET",
    "/v1/recordings",
    scope="recordings",
    query=(
        Query(CALL_ID, "Only recordings of this call."),
        Query("limit", f"At most this many, 1 to {MAX_LIMIT}; {DEFAULT_LIMIT} if left out."),
    ),
    errors=OF_STORE,
    for_tenants=True,
)
async def list_recordings(request: web.Request) -> shapes.Recordings:
    """Recordings that are kept, newest first."""
    limit, call_id = request.query.get("limit", str(DEFAULT_LIMIT)), request.query.get(CALL_ID)
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MAX_LIMIT):  # noqa: PLR2004
        raise MalformedRequest(f"limit is 1 to {MAX_LIMIT}")
    tenant = current_tenant()
    infos = await _stored(request, lambda store: store.newest(tenant, limit=int(limit), call_id=call_id))
    return shapes.Recordings([_view(request, info) for info in infos])


@ROUTES.add("GET", "/v1/recordings/{id}", scope="recordings", errors=(RecordingNotFound, *OF_STORE))
async def get_recording(request: web.Request) -> shapes.Recording:
    """One recording: how far it is, or how it ended."""
    live = _live(request)
    return _view(request, (await _kept(request))[0]) if live is None else shapes.Recording.live(live)


@ROUTES.add(
    "GET",
    "/v1/recordings/{id}/audio",
    scope="recordings",
    errors=(RecordingNotFound, *OF_STORE, WrongState),
    content_types=("audio/wav",),
    streams=True,
    is_file=True,
)
async def get_recording_audio(request: web.Request) -> web.StreamResponse:
    """The WAV file of a recording that is complete; parts of it with Range."""
    info, path = await _complete(request)
    if not await asyncio.to_thread(path.is_file):
        raise RecordingNotFound(f"recording {info.recording_id} has no audio")
    headers = {
        "Content-Type": "audio/wav",
        "Content-Disposition": f'attachment; filename="{info.recording_id}.wav"',
    }
    return web.FileResponse(path, headers=headers)


@ROUTES.add("DELETE", "/v1/recordings/{id}", scope="recordings", errors=(RecordingNotFound, *OF_STORE, WrongState))
async def delete_recording(request: web.Request) -> shapes.Recording:
    """Remove a recording that is complete, and its audio."""
    info, _ = await _complete(request)
    await _stored(request, lambda store: store.delete(info))
    return shapes.Recording.on_disk(info)


async def _stored(request: web.Request, work: Callable[[RecordingStore], T]) -> T:
    """Run ``work`` on a thread.

    Raises:
        RecordingOff, RecordingsUnreadable: there are no recordings, or the disk refuses.
    """
    try:
        return await asyncio.to_thread(work, request.app[CONTEXT].services.recordings.store)
    except OSError as error:
        log.error("recordings_not_read", detail=str(error))
        raise RecordingsUnreadable(f"record.dir: {error.strerror}") from None


async def _kept(request: web.Request) -> tuple[RecordingInfo, Path]:
    recording_id, tenant = request.match_info["id"], current_tenant()
    found = await _stored(request, lambda store: store.find(recording_id, tenant))
    if found is None:
        raise RecordingNotFound(f"no recording {recording_id[:80]!r}")
    return found


def _live(request: web.Request) -> LiveRecording | None:
    """Return the recording in the path, if its call is up and the token may see it."""
    live = request.app[CONTEXT].services.recordings.live(request.match_info["id"])
    return live if live is not None and current_tenant() in ("", live.plan.info.tenant) else None


async def _complete(request: web.Request) -> tuple[RecordingInfo, Path]:
    live = _live(request)  # a live recording may have no file yet
    if live is not None or (found := await _kept(request))[0].state == "recording":
        raise WrongState(f"recording {request.match_info['id']} is not complete; call.recording tells when it is")
    return found


def _view(request: web.Request, info: RecordingInfo) -> shapes.Recording:
    recordings = request.app[CONTEXT].services.recordings
    live = recordings.live(info.recording_id)
    return shapes.Recording.on_disk(recordings.latest(info)) if live is None else shapes.Recording.live(live)
