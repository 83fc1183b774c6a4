"""The handler of the report of a call, and the outlines of its recordings."""

import asyncio
from typing import Final

from aiohttp import web

from cc_tts import logs
from cc_tts.api.admin.ladder import ladder
from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.auth import HOLDER
from cc_tts.api.http.route import RouteTable
from cc_tts.api.reports.timeline import picture_of
from cc_tts.callreport.page import render
from cc_tts.callreport.picture import Waveform
from cc_tts.callreport.waveform import waveforms
from cc_tts.calls.call import Call
from cc_tts.calls.registry import CallRegistry
from cc_tts.errors import LineUnsupported, UserAgentUnavailable
from cc_tts.recorder.info import RecordingInfo
from cc_tts.recorder.store import RecordingStore

MAX_RECORDINGS: Final = 8
"""The most recordings of one call that the report shows (unmeasured)."""

ROUTES: Final = RouteTable("Calls")
log = logs.get(__name__)


@ROUTES.add("GET", "/v1/calls/{id}/report", scope="read", errors=ON_A_CALL, content_types=("text/html",))
async def get_call_report(request: web.Request) -> web.StreamResponse:
    """Show one call as a page: prompts, keys, quality; with the scope recordings also how loud either side was."""
    call, context = call_of(request), request.app[CONTEXT]
    events = context.services.events.of_call(call.id)
    store = context.services.recordings.store if context.config.record.dir else None
    waveforms: list[Waveform] = []
    if store is not None and "recordings" in HOLDER.get().scopes:
        begun_s = call.answered_at_s or call.created_at_s
        waveforms = await asyncio.to_thread(_waveforms, store, call.id, call.tenant, (call.created_at_s, begun_s))
    sip = await _sip(context.registry, call)
    picture = picture_of(call, events, now_s=context.services.clock.wall_s(), waveforms=waveforms, ladder=sip)
    page = await asyncio.to_thread(render, picture)
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    return web.Response(text=page, content_type="text/html", headers=headers)


async def _sip(registry: CallRegistry, call: Call) -> str:
    """Return the SIP messages of the call as text; empty if none are kept."""
    try:
        found = await registry.trace(call)
    except (LineUnsupported, UserAgentUnavailable):
        return ""
    return ladder(call.id, call.sip_call_id, found.messages) if found.messages else ""


def _waveforms(store: RecordingStore, call_id: str, tenant: str, times_s: tuple[float, float]) -> list[Waveform]:
    """Return the outlines of the call's recordings that had audio in this time. Waits for the disk."""
    origin_s, media_s = times_s
    found: list[Waveform] = []
    try:
        newest = store.newest(tenant, limit=MAX_RECORDINGS, call_id=call_id)
    except OSError as error:
        log.warning("recordings_not_read", detail=str(error))
        return []
    for info in reversed(newest):
        if info.state == "saved":
            found += _outlines(store, info, max(info.created_at_s, media_s) - origin_s)
    return found


def _outlines(store: RecordingStore, info: RecordingInfo, begin_s: float) -> list[Waveform]:
    try:
        known = store.find(info.recording_id, info.tenant)
        mono = {"caller": "caller", "agent": "we"}.get(info.tracks, "both")
        names = ("caller", "we") if info.channels == "dual" else (mono,)
        return [] if known is None else waveforms(known[1], *names, begin_s=begin_s)
    except OSError as error:
        log.warning("recording_not_read", recording_id=info.recording_id, detail=error.strerror)
        return []
