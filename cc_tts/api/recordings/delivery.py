"""Delivers complete recordings: by PUT to the client's URL, and to the command of ``record.on_saved``.

The URL is a client's, so it leads only to hosts that the operator has named, over TLS, without redirects, and to addresses
of the Internet or of ``record.upload_networks``: each address of the host is checked before it is connected to. The command
gets its arguments without a shell. Runs on: the event loop.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Final

import aiohttp
from msgspec import UNSET
from yarl import URL

from cc_tts import logs
from cc_tts.calls.events.types import CallRecordingDelivered
from cc_tts.config.record import RecordConfig
from cc_tts.egress.hosts import AllowedHosts, usable_url
from cc_tts.egress.http import GuardedClient, failure
from cc_tts.errors import FieldError, Unprocessable
from cc_tts.recorder.info import RecordingInfo

FIRST_PAUSE_S: Final = 1.0  # unmeasured
PAUSE_FACTOR: Final = 4
"""The pauses between attempts are 1, 4, 16, 64 s… (unmeasured)."""
MAX_AT_ONCE: Final = 8
"""The most deliveries at the same time (unmeasured)."""
_HTTP_OK: Final = range(200, 300)

log = logs.get(__name__)


def check_url(text: str, config: RecordConfig) -> None:
    """Raise ``Unprocessable`` if recordings may not be sent to this URL."""
    url = usable_url(text, "https")
    if url is None:
        fault = "an https URL without user and password"
    elif not _allowed(config).has(url.raw_host or ""):
        fault = "its host is none of record.upload_hosts, or a private address in none of record.upload_networks"
    else:
        return
    raise Unprocessable.about(FieldError("/upload_url", fault))


def _allowed(config: RecordConfig) -> AllowedHosts:
    return AllowedHosts(config.upload_hosts, config.upload_networks)


class RecordingDelivery:
    """Delivers recordings that are complete."""

    def __init__(self, config: RecordConfig) -> None:
        self._config = config
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def deliver(self, info: RecordingInfo, path: Path) -> CallRecordingDelivered | None:
        """Deliver a file to its URL, if it has one, and to the command, if there is one. Returns ``None`` if there is
        neither.
        """
        uploaded = None if info.upload_url is None else await self._try(info, path, is_upload=True)
        handed = await self._try(info, path, is_upload=False) if self._config.on_saved else None
        return handed if uploaded is None or (handed is not None and handed.result == "failed") else uploaded

    async def _try(self, info: RecordingInfo, path: Path, *, is_upload: bool) -> CallRecordingDelivered:
        pause_s, detail = FIRST_PAUSE_S, ""
        for number in range(1, self._config.deliver_tries + 1):
            detail = await self._fault(info, path, is_upload=is_upload)
            if not detail:
                return _outcome(info, number, is_upload=is_upload)
            log.warning("recording_not_delivered", recording_id=info.recording_id, attempt=number, detail=detail)
            if number < self._config.deliver_tries:
                await asyncio.sleep(pause_s)
                pause_s *= PAUSE_FACTOR
        return _outcome(info, self._config.deliver_tries, is_upload=is_upload, detail=detail)

    async def _fault(self, info: RecordingInfo, path: Path, *, is_upload: bool) -> str:
        """Try once; return why it failed, or an empty text."""
        try:
            async with self._slots, asyncio.timeout(self._config.deliver_timeout_s):
                return await (self._upload(info, path) if is_upload else self._run(info, path))
        except TimeoutError:
            return f"not done within {self._config.deliver_timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no name of a host
            return failure(error)

    async def _upload(self, info: RecordingInfo, path: Path) -> str:
        assert info.upload_url is not None
        try:
            check_url(info.upload_url, self._config)  # the configuration may have changed since
        except Unprocessable as error:
            return error.detail
        headers = {
            "Content-Type": "audio/wav",
            "Content-Length": str((await asyncio.to_thread(path.stat)).st_size),
        }
        client = GuardedClient("record.upload_hosts", lambda: _allowed(self._config))
        file = await asyncio.to_thread(path.open, "rb")
        with file:
            try:
                url = URL(info.upload_url, encoded=True)
                async with client.request("PUT", url, data=file, headers=headers) as response:
                    return "" if response.status in _HTTP_OK else f"status {response.status}"
            finally:
                await client.close()

    async def _run(self, info: RecordingInfo, path: Path) -> str:
        values = {"path": str(path), "recording_id": info.recording_id, "call_id": info.call_id, "tenant": info.tenant}
        argv = [_filled(argument, values) for argument in self._config.on_saved]
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, process_group=0
        )
        try:
            status = await process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the whole group, with the processes that it has started
            await process.wait()
            raise
        return f"the command exited with status {status}" if status else ""


def _filled(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


def _outcome(info: RecordingInfo, attempts: int, *, is_upload: bool, detail: str = "") -> CallRecordingDelivered:
    return CallRecordingDelivered(
        recording_id=info.recording_id,
        client_state=UNSET if info.client_state is None else info.client_state,
        to="upload" if is_upload else "command",
        result="failed" if detail else "delivered",
        attempts=attempts,
        detail=detail,
    )
