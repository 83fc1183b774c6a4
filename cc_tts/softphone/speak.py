"""The softphone's own request to speak: finds its call on the server and posts a prompt, on a thread of its own."""

import http.client
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from cc_tts.clock import Clock
from cc_tts.errors import UNREADABLE
from cc_tts.softphone.report import SpeakReport
from cc_tts.softphone.rtp.receiver import Talkspurt

_REQUEST_TIMEOUT_S: Final = 10.0  # unmeasured
_FIND_TRIES: Final = 20
_FIND_PAUSE_S: Final = 0.1  # unmeasured

Kind = TypeVar("Kind", bound=msgspec.Struct)


class _Call(msgspec.Struct):
    id: str
    sip_call_id: str | None = None


class _Calls(msgspec.Struct):
    calls: list[_Call]


class _Accepted(msgspec.Struct):
    """The answer to a request to speak."""

    id: str


class _Problem(msgspec.Struct):
    """A problem document (RFC 9457)."""

    detail: str = ""


@dataclass(slots=True, kw_only=True)
class SpeakRequest:
    """``POST /v1/calls/{id}/speak`` for the call whose SIP Call-ID is ours, to the server at ``api``."""

    text: str
    api: str
    token: str = field(default="", repr=False)
    voice: str = ""
    _thread: threading.Thread | None = None
    _given_up: threading.Event = field(default_factory=threading.Event)
    _report: SpeakReport = field(default_factory=SpeakReport)

    def start(self, sip_call_id: str, clock: Clock) -> None:
        """Begin; returns at once."""
        arguments = (sip_call_id, clock)
        self._thread = threading.Thread(target=self._run, args=arguments, name="softphone-speak", daemon=True)
        self._thread.start()

    def finish(self, talkspurts: Sequence[Talkspurt]) -> SpeakReport:
        """Wait for the response, no longer than the request's own timeout."""
        self._given_up.set()
        if self._thread is not None:
            self._thread.join(_REQUEST_TIMEOUT_S)
            if self._thread.is_alive():
                self._report.error = f"{self.api} did not answer within {_REQUEST_TIMEOUT_S:g} s"
        self._report.measure(talkspurts)
        return self._report

    def _run(self, sip_call_id: str, clock: Clock) -> None:
        try:
            call_id = self._find(sip_call_id)
            if call_id is None:
                self._report.error = f"{self.api} knows no call with Call-ID {sip_call_id}"
                return
            body = {"text": self.text} | ({"voice": self.voice} if self.voice else {})
            path = f"/v1/calls/{urllib.parse.quote(call_id)}/speak"
            self._report.posted_at_ns = clock.now_ns()
            status, accepted = self._request(path, _Accepted, body)
            self._report.accepted_at_ns = clock.now_ns()
            self._report.http_status, self._report.utterance_id = status, accepted.id
        except urllib.error.HTTPError as error:
            self._report.http_status = error.code
            self._report.error = f"HTTP {error.code} {_problem(error.read())}".strip()
            error.close()
        except (OSError, ValueError, http.client.HTTPException, *UNREADABLE) as error:
            self._report.error = f"{self.api}: {getattr(error, 'reason', None) or error}"

    def _find(self, sip_call_id: str) -> str | None:
        """Find the call; the server may list it only a moment after its 200 OK has reached us."""
        for _ in range(_FIND_TRIES):
            _, found = self._request("/v1/calls", _Calls)
            for call in found.calls:
                if call.sip_call_id == sip_call_id:
                    return call.id
            if self._given_up.wait(_FIND_PAUSE_S):
                break
        return None

    def _request(self, path: str, kind: type[Kind], body: dict[str, str] | None = None) -> tuple[int, Kind]:
        """Send a GET, or a POST with a body; any status but 2xx raises ``HTTPError``."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(self.api.rstrip("/") + path, data=data, headers=headers)  # noqa: S310 - checked in arguments: http or https
        with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
            return answer.status, msgspec.json.decode(answer.read(), type=kind)


def _problem(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Problem).detail
    except UNREADABLE:
        return ""
