"""The softphone's own request to speak: finds its call on the server and posts a prompt, on a thread of its own."""

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from cc_tts.clock import Clock
from cc_tts.softphone.report import SpeakReport
from cc_tts.softphone.rtp.receiver import Talkspurt

_REQUEST_TIMEOUT_S: Final = 10.0
_FIND_TRIES: Final = 20
_FIND_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakOrder:
    """The text, the voice and the API to send them to."""

    text: str
    api: str
    token: str = field(default="", repr=False)
    voice: str = ""


class SpeakRequest:
    """``POST /v1/calls/{id}/speak`` for the call whose SIP Call-ID is ours."""

    def __init__(self, order: SpeakOrder, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._given_up = threading.Event()
        self._report = SpeakReport()

    def start(self, sip_call_id: str) -> None:
        """Begin; returns at once."""
        self._thread = threading.Thread(target=self._run, args=(sip_call_id,), name="softphone-speak", daemon=True)
        self._thread.start()

    def finish(self, talkspurts: Sequence[Talkspurt]) -> SpeakReport:
        """Wait for the response, no longer than the request's own timeout."""
        self._given_up.set()
        if self._thread is not None:
            self._thread.join(_REQUEST_TIMEOUT_S)
        self._report.measure(talkspurts)
        return self._report

    def _run(self, sip_call_id: str) -> None:
        try:
            call_id = self._find(sip_call_id)
            if call_id is None:
                self._report.error = f"{self._order.api} knows no call with Call-ID {sip_call_id}"
                return
            body = {"text": self._order.text} | ({"voice": self._order.voice} if self._order.voice else {})
            self._report.posted_at_ns = self._clock.now_ns()
            status, answer = self._request(f"/v1/calls/{urllib.parse.quote(call_id)}/speak", body)
            self._report.accepted_at_ns = self._clock.now_ns()
            self._report.http_status = status
            self._report.utterance_id = str(answer.get("id", answer.get("utterance_id", "")))
        except urllib.error.HTTPError as error:
            self._report.http_status = error.code
            self._report.error = f"HTTP {error.code} {_problem(error.read())}".strip()
            error.close()
        except (OSError, ValueError) as error:
            self._report.error = f"{self._order.api}: {getattr(error, 'reason', None) or error}"

    def _find(self, sip_call_id: str) -> str | None:
        """The server may list the call a moment after its 200 OK has reached us."""
        for _ in range(_FIND_TRIES):
            status, answer = self._request("/v1/calls", None)
            if status == HTTPStatus.OK:
                for call in answer.get("calls", ()):
                    if call.get("sip_call_id") == sip_call_id:
                        return str(call["id"])
            if self._given_up.wait(_FIND_PAUSE_S):
                return None
        return None

    def _request(self, path: str, body: dict[str, str] | None) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": "application/json"}
        if self._order.token:
            headers["Authorization"] = f"Bearer {self._order.token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self._order.api.rstrip("/") + path, data=data, headers=headers)  # noqa: S310 - checked in arguments: http or https
        with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())


def _problem(body: bytes) -> str:
    """``detail`` of a problem document (RFC 9457), or nothing."""
    try:
        return str(json.loads(body).get("detail", ""))
    except (ValueError, AttributeError):
        return ""
