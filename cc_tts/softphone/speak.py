"""The softphone's own request to speak: finds its call on the server and posts a prompt, on a thread of its own."""

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cc_tts.clock import Clock
from cc_tts.softphone.report import SpeakReport
from cc_tts.softphone.rtp.receiver import Talkspurt

_REQUEST_TIMEOUT_S: Final = 10.0  # unmeasured
_FIND_TRIES: Final = 20
_FIND_PAUSE_S: Final = 0.1  # unmeasured


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
        self._report.measure(talkspurts)
        return self._report

    def _run(self, sip_call_id: str, clock: Clock) -> None:
        try:
            call_id = self._find(sip_call_id)
            if call_id is None:
                self._report.error = f"{self.api} knows no call with Call-ID {sip_call_id}"
                return
            body = {"text": self.text} | ({"voice": self.voice} if self.voice else {})
            self._report.posted_at_ns = clock.now_ns()
            status, answer = self._request(f"/v1/calls/{urllib.parse.quote(call_id)}/speak", body)
            self._report.accepted_at_ns = clock.now_ns()
            self._report.http_status = status
            self._report.utterance_id = str(answer.get("id", ""))
        except urllib.error.HTTPError as error:
            self._report.http_status = error.code
            self._report.error = f"HTTP {error.code} {_problem(error.read())}".strip()
            error.close()
        except (OSError, ValueError) as error:
            self._report.error = f"{self.api}: {getattr(error, 'reason', None) or error}"

    def _find(self, sip_call_id: str) -> str | None:
        """Find the call; the server may list it only a moment after its 200 OK has reached us."""
        for _ in range(_FIND_TRIES):
            _, answer = self._request("/v1/calls")
            for call in answer.get("calls", ()):
                if call.get("sip_call_id") == sip_call_id:
                    return str(call["id"])
            if self._given_up.wait(_FIND_PAUSE_S):
                break
        return None

    def _request(self, path: str, body: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a GET, or a POST with a body; any status but 2xx raises ``HTTPError``."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api.rstrip("/") + path, data=data, headers=headers)  # noqa: S310 - checked in arguments: http or https
        with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())


def _problem(body: bytes) -> str:
    """Return ``detail`` of a problem document (RFC 9457), or nothing."""
    try:
        return str(json.loads(body).get("detail", ""))
    except (ValueError, AttributeError):
        return ""
