"""The message filter on a library without PJSIP: messages are shown to it, and it is asked what became of them."""

from collections.abc import Callable
from typing import Any, Final, cast

from cc_tts.config import load as config
from cc_tts.ua.client import settings_of
from cc_tts.ua.dialogs import Dialogs
from cc_tts.ua.guard.c_library import CLibrary, Headers
from cc_tts.ua.guard.message_filter import MessageFilter
from cc_tts.ua.guard.policy import InboundPolicy
from cc_tts.ua.refer.message import Notification
from cc_tts.ua.refer.referral import Answer
from cc_tts.ua.sip.reason import RemoteReason
from tests.fakes.fake_line import FakeClock

HOST: Final = "192.0.2.1"
MAX_BYTES: Final = 4_000
TRANSACTIONS: Final = 16
DIALOGS: Final = 32
"""PJSIP_MOD_PRIORITY_TSX_LAYER and PJSIP_MOD_PRIORITY_UA_PROXY_LAYER."""


class FakeLibrary:
    """One message at a time. PJSIP has the dialog in which our tag is ``ours``, and one of a call that is ``over``."""

    def __init__(self) -> None:
        self.requests: dict[int, Callable[[int], bool]] = {}
        self.responses: list[Callable[[int], bool]] = []
        self.answers: list[tuple[int, Headers, str]] = []
        self.dropped: list[str] = []
        self.off: tuple[int, ...] = ()
        self.refuses_modules = self.fails = False
        self.text = ""
        self.host = HOST
        self.method: str | None = None

    def register_module(
        self,
        _name: bytes,
        priority: int,
        *,
        on_request: Callable[[int], bool] | None = None,
        on_response: Callable[[int], bool] | None = None,
    ) -> None:
        if self.refuses_modules:
            raise RuntimeError("status 1")
        if on_request is not None:
            self.requests[priority] = on_request
        self.responses += [on_response] if on_response is not None else []

    def set_capability(self, *_capability: object) -> None:
        pass

    def method_of(self, _rdata: int) -> str:
        if self.method is not None:
            return self.method
        first, second = self.text.split(" ", 2)[:2]
        return second if first == "SIP/2.0" else first

    def message(self, _rdata: int) -> tuple[str, str]:
        if self.fails:
            raise RuntimeError("broken")
        return self.host, self.text

    def sdp(self, _rdata: int, repaired: Callable[[str], str]) -> tuple[str, bool] | None:
        body = repaired(self.text.partition("\r\n\r\n")[2])
        return (body, "a=\r" not in body) if body.startswith("v=") else None

    def has_dialog(self, *dialog: str) -> bool:
        return self.is_over(*dialog) is False

    def is_over(self, _call_id: str, local_tag: str, _remote_tag: str) -> bool | None:
        return {"ours": False, "over": True}.get(local_tag)

    def respond(self, _rdata: int, code: int, headers: Headers = (), *, reason: str = "") -> None:
        self.answers.append((code, headers, reason))

    def drop_body(self, _rdata: int) -> None:
        self.dropped.append("body")

    def drop_headers(self, _rdata: int, name: str) -> None:
        self.dropped.append(name)

    def switch_off(self, _rdata: int, indexes: tuple[int, ...], *, num_media: int) -> None:
        assert num_media == 2
        self.off = indexes


class FakeLeg:
    """A call that messages are about, and what was heard of it."""

    def __init__(self, sip_call_id: str) -> None:
        self.dialog = (sip_call_id, "theirs")
        self.is_over = self.is_incoming = self.is_ending = False
        self.has_referred = True
        self.keys: list[tuple[int, str, int]] = []
        self.ends: list[tuple[RemoteReason, ...]] = []
        self.notified: list[Notification] = []
        self.num_lost = 0
        self.not_read: list[str] = []
        self.dtmf = self.refer = self
        self.referral = FakeReferral(self)

    def info(self, cseq: int, key: str, *, duration_ms: int) -> None:
        self.keys.append((cseq, key, duration_ms))

    def take_reasons(self, reasons: tuple[RemoteReason, ...]) -> None:
        self.ends.append(reasons)

    def take(self, notification: Notification) -> bool:
        self.notified.append(notification)
        return self.has_referred

    def unreadable(self, response: str) -> None:
        self.not_read.append(response)


class FakeReferral:
    def __init__(self, leg: FakeLeg) -> None:
        self._leg = leg

    def answer(self, message: str) -> Answer:
        assert message.partition(" ")[0] == "REFER"
        return 603, ()

    def refused(self) -> None:
        self._leg.num_lost += 1


class Filtered:
    """A filter of this configuration."""

    def __init__(self, *overrides: str, retry_after_s: int | None = None, refuses_modules: bool = False) -> None:
        self.clock = FakeClock()
        self.library = FakeLibrary()
        self.library.refuses_modules = refuses_modules
        self.leg = FakeLeg("c")
        legs = {"call_1": self.leg, "call_2": FakeLeg("ours")}
        self.settings = settings_of(config.load(overrides=overrides))[0]
        self.policy = InboundPolicy(self.settings, clock=self.clock, max_message_bytes=MAX_BYTES)
        self.overloads = 0
        message_filter = MessageFilter(
            cast("CLibrary", self.library),
            self.settings,
            policy=self.policy,
            dialogs=Dialogs(cast("Any", legs)),
            refusal=lambda: retry_after_s,
            on_refused=self._count,
            on_offer=lambda _codecs: None,
        )
        message_filter.install()
        self.reload = message_filter.reload

    def _count(self) -> None:
        self.overloads += 1

    def _show(self, start: str, *lines: str, from_tag: str, to_tag: str, call_id: str, cseq: str, body: str) -> None:
        from_, to = (f";tag={each}" if each else "" for each in (from_tag, to_tag))
        head = (start, f"Call-ID: {call_id}", f"From: <sip:x@y>{from_}", f"To: <sip:a@b>{to}", *lines, f"CSeq: {cseq}")
        self.library.text = "\r\n".join((*head, "", body))
        self.library.answers.clear()
        self.library.dropped.clear()

    def receive(
        self, method: str, *lines: str, body: str = "", host: str = HOST, to_tag: str = "", uri: str = "sip:a@b"
    ) -> int | str:
        """Show a request to the modules as PJSIP does; return the status of the answer, ``silence``, or ``passed``."""
        self.library.host = host
        start = f"{method} {uri} SIP/2.0"
        self._show(start, *lines, from_tag="theirs", to_tag=to_tag, call_id="c", cseq=f"7 {method}", body=body)
        for priority, module in sorted(self.library.requests.items()):
            if priority > DIALOGS and self.library.has_dialog("c", to_tag, "theirs"):
                break
            if module(1):
                return self.library.answers[0][0] if self.library.answers else "silence"
        assert not self.library.answers
        return "passed"

    def drops(
        self,
        status: str,
        method: str,
        *lines: str,
        body: str = "",
        host: str = HOST,
        call_id: str = "c",
        from_tag: str = "ours",
        to_tag: str = "theirs",
    ) -> bool:
        """Show a response to a request of ours to the module; return whether it is dropped."""
        self.library.host = host
        start = f"SIP/2.0 {status} Text"
        self._show(start, *lines, from_tag=from_tag, to_tag=to_tag, call_id=call_id, cseq=f"2 {method}", body=body)
        (module,) = self.library.responses
        return module(1)

    def header(self, name: str) -> str:
        return next(value for key, value in self.library.answers[0][1] if key == name)

    def refused(self) -> dict[str, int]:
        return {cause: some.count for cause, some in self.policy.take_refused().items()}
