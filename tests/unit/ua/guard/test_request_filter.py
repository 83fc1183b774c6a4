"""Who is answered what, by the gate and its policy, without PJSIP."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from cc_tts.config import load as config
from cc_tts.ua.client import settings_of
from cc_tts.ua.guard.c_library import CLibrary, Headers
from cc_tts.ua.guard.policy import InboundPolicy
from cc_tts.ua.guard.request_filter import ALLOWED, Gate
from cc_tts.ua.sip_thread import SipThread
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

USERS = "auth.users=[{username = 'pbx', password = 'open sesame'}]"
LIMIT = "sip.max_requests_per_source_s=1"
NOBODY_TRUSTED = "sip.trusted_peers=[]"
HOST = "192.0.2.1"


class FakeLibrary:
    """Two modules and no PJSIP: :meth:`receive` shows a request to both and tells what was answered."""

    def __init__(self, *, refuses_modules: bool = False) -> None:
        self.modules: list[Callable[[int], bool]] = []
        self.dialogs: set[tuple[str, str, str]] = set()
        self.answers: list[tuple[int, Headers, str]] = []
        self._refuses_modules = refuses_modules
        self._request = (b"", "", "")

    def register_module(
        self,
        _name: bytes,
        _priority: int,
        *,
        on_request: Callable[[int], bool] | None = None,
        on_response: Callable[[int], bool] | None = None,
    ) -> None:
        if self._refuses_modules:
            raise RuntimeError("status 1")
        if on_request is not None:
            self.modules.append(on_request)
        self.on_response = on_response

    def method_of(self, _rdata: int) -> bytes:
        return self._request[0]

    def message(self, _rdata: int) -> tuple[str, str]:
        return self._request[1:]

    def has_dialog(self, *name: str) -> bool:
        return name in self.dialogs

    def respond(self, _rdata: int, code: int, headers: Headers = (), *, reason: str = "") -> None:
        self.answers.append((code, headers, reason))

    def drops(
        self, status: str, method: str, *, host: str = HOST, call_id: str = "theirs", more: Sequence[str] = ()
    ) -> bool:
        """Whether a response is kept from PJSIP."""
        assert self.on_response is not None
        self._request = (
            status.encode(),
            host,
            "\r\n".join(
                (
                    f"SIP/2.0 {status} No",
                    f"Call-ID: {call_id}",
                    "From: <sip:a@b>",
                    "To: <sip:x@y>",
                    *more,
                    f"CSeq: 2 {method}",
                )
            )
            + "\r\n\r\n",
        )
        return self.on_response(1)

    def receive(self, method: str, *lines: str, host: str = HOST, to_tag: str = "", uri: str = "sip:a@b") -> int | str:
        """The status of the answer, ``silence``, or ``passed``."""
        to = "To: <sip:a@b>" + (f";tag={to_tag}" if to_tag else "")
        head = (
            f"{method} {uri} SIP/2.0",
            "Call-ID: c",
            "From: <sip:x@y>;tag=theirs",
            to,
            f"CSeq: 1 {method}",
            *lines,
            "",
            "",
        )
        self._request = (method.encode(), host, "\r\n".join(head))
        self.answers.clear()
        for module in self.modules if ("c", to_tag, "theirs") not in self.dialogs else self.modules[:1]:
            if module(1):
                return self.answers[0][0] if self.answers else "silence"
        return "passed"


class Door:
    """A gate of this configuration on a fake library."""

    def __init__(self, *overrides: str, retry_after_s: int | None = None) -> None:
        SipThread.enter()
        self.clock = FakeClock()
        self.library = FakeLibrary()
        self.policy = InboundPolicy(settings_of(config.load(overrides=overrides)), clock=self.clock)
        self.overloads = 0
        gate = Gate(
            cast("CLibrary", self.library),
            policy=self.policy,
            refusal=lambda: retry_after_s,
            on_refused=self._count,
            is_ours=lambda call_id: call_id == "ours",
        )
        assert gate.install_or_say_why()
        self.receive = self.library.receive

    def _count(self) -> None:
        self.overloads += 1

    def header(self, name: str) -> str:
        """Of the last answer."""
        return next(value for key, value in self.library.answers[0][1] if key == name)

    def refused(self) -> dict[str, int]:
        return {cause: some.count for cause, some in self.policy.take_refused().items()}


def credentials(challenge: str, password: str, *, username: str = "pbx") -> str:
    """An Authorization line for a challenge by SHA-256."""
    match = re.search(r'nonce="([^"]+)"', challenge)
    assert match is not None

    def hashed(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    first, second = hashed(f"{username}:cc-tts:{password}"), hashed("INVITE:sip:a@b")
    return (
        f'Authorization: Digest username="{username}", realm="cc-tts", nonce="{match[1]}", uri="sip:a@b", '
        f'algorithm=SHA-256, response="{hashed(f"{first}:{match[1]}:00000001:c:auth:{second}")}", cnonce="c", '
        "qop=auth, nc=00000001"
    )


def test_methods_outside_a_dialog() -> None:
    door = Door()
    wanted: dict[str, int | str] = {
        "INVITE": "passed",
        "OPTIONS": 200,
        "ACK": "passed",
        "BYE": 481,
        "CANCEL": 481,
        "SUBSCRIBE": 489,
        "REGISTER": 405,
        "TELEPORT": 405,
    }
    assert {method: door.receive(method) for method in wanted} == wanted
    assert not door.policy.is_closed


def test_overload_is_503_for_invite_and_options() -> None:
    door = Door(retry_after_s=7)
    assert [door.receive(method) for method in ("INVITE", "OPTIONS", "REGISTER")] == [503, 503, 405]
    assert door.overloads == 1


def test_options_inside_a_dialog_is_200() -> None:
    door = Door(retry_after_s=7)
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert door.receive("OPTIONS", to_tag="ours") == 200
    assert "INVITE" in door.header("Allow")
    assert door.receive("OPTIONS", to_tag="other") == 481
    assert door.receive("BYE", to_tag="ours") == "passed"


@pytest.mark.parametrize("to_tag", ["", "ours"])
def test_options_that_requires_what_is_not_there_is_420(to_tag: str) -> None:
    door = Door()
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert door.receive("OPTIONS", "Require: timer, Foo, 100rel", "Require: bar baz, qux", to_tag=to_tag) == 420
    assert door.header("Unsupported") == "foo, qux"
    odd = "Require: " + ",".join(["100rel"] * 30 + ["x" * 65])
    assert door.receive("OPTIONS", odd, to_tag=to_tag) == 420
    known = door.receive("OPTIONS", "Require: 100rel,TIMER", "Proxy-Require: foo", to_tag=to_tag)
    assert known == 200
    assert door.receive("INVITE", "Require: foo", to_tag=to_tag) == "passed", "pjsua says so itself"


def test_strangers_hear_nothing_but_inside_their_dialogs() -> None:
    door = Door('sip.allowed_peers=["198.51.100.0/24"]')
    assert door.policy.is_closed
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert [door.receive(method) for method in ("INVITE", "OPTIONS", "REGISTER", "BYE", "CANCEL")] == ["silence"] * 5
    assert door.receive("INVITE", to_tag="guessed") == "silence"
    assert door.receive("BYE", to_tag="ours") == "passed"
    assert door.receive("ACK") == "passed"
    assert door.receive("INVITE", host="198.51.100.7") == "passed"
    assert door.refused() == {"peer": 6}
    assert door.refused() == {}, "told once"


def test_too_many_requests_of_one_source() -> None:
    door = Door(LIMIT)
    assert [door.receive("INVITE") for _ in range(6)] == ["passed"] * 2 + [503] * 2 + ["silence"] * 2
    assert door.receive("REGISTER") == "silence"
    assert door.receive("CANCEL") == 481
    assert door.receive("INVITE", host="192.0.2.2") == "passed"
    assert door.refused() == {"rate": 5}
    door.clock.advance(1000)
    assert [door.receive("OPTIONS") for _ in range(3)] == [200, 200, "silence"], "503 would say that we are full"


def test_trusted_peers_and_dialogs_have_no_limit() -> None:
    door = Door(LIMIT)
    assert {door.receive("INVITE", host="127.0.0.1") for _ in range(100)} == {"passed"}
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert {door.receive("INFO", to_tag="ours") for _ in range(100)} == {"passed"}
    assert {Door("sip.max_requests_per_source_s=0", NOBODY_TRUSTED).receive("INVITE") for _ in range(100)} == {"passed"}


def test_a_password_is_asked_for() -> None:
    door = Door(USERS, retry_after_s=7)
    assert door.receive("INVITE") == 401
    assert [name for name, _ in door.library.answers[0][1]] == ["WWW-Authenticate"] * 2
    line = credentials(door.header("WWW-Authenticate"), "open sesame")
    assert door.overloads == 0, "who may not call learns nothing of the load"
    assert door.receive("INVITE", line) == 503
    assert door.receive("INVITE", line) == 401
    assert "stale=true" in door.header("WWW-Authenticate")
    assert door.receive("INVITE", "Authorization: Bearer abc") == 401
    assert door.refused() == {}, "nobody did anything wrong so far"
    assert door.receive("INVITE", "Authorization: Digest") == 400
    assert door.receive("INVITE", *[line] * 5) == 400
    assert door.refused() == {"malformed": 2}


def test_a_request_that_contradicts_itself_is_refused() -> None:
    door = Door()
    assert door.receive("INVITE", "Content-Length: 1") == 400
    assert "Content-Length" in door.library.answers[0][2]
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert door.receive("INFO", "l: 1", to_tag="ours") == 400
    assert door.receive("INFO", "l: 0", to_tag="ours") == "passed"
    assert door.refused() == {"malformed": 2}


def test_what_is_not_served_inside_a_dialog() -> None:
    door = Door()
    door.library.dialogs.add(("c", "ours", "theirs"))
    wanted: dict[str, int | str] = {
        "INFO": "passed",
        "UPDATE": "passed",
        "REFER": 603,
        "NOTIFY": 481,
        "MESSAGE": 405,
        "TELEPORT": 405,
        "SUBSCRIBE": 489,
    }
    assert {method: door.receive(method, to_tag="ours") for method in wanted} == wanted
    assert {
        method: door.receive(method, to_tag="another") for method in wanted if method not in ("INFO", "UPDATE")
    } == {
        "REFER": 481,
        "NOTIFY": 481,
        "MESSAGE": 481,
        "TELEPORT": 481,
        "SUBSCRIBE": 481,
    }
    assert door.receive("MESSAGE", to_tag="ours") == 405
    assert door.header("Allow") == ALLOWED


@pytest.mark.parametrize("uri", ["tel:+1", "TEL:+1", "http://h", "sip", ""])
def test_another_scheme_is_416(uri: str) -> None:
    door = Door()
    assert [door.receive(method, uri=uri) for method in ("INVITE", "OPTIONS", "BYE")] == [416] * 3
    assert door.receive("INVITE", uri="SIPS:a@b") == "passed"
    assert Door('sip.allowed_peers=["198.51.100.1"]').receive("INVITE", uri=uri) == "silence"


@pytest.mark.parametrize("line", ["Contact: <tel:+1>", "m: *", "Contact:", "Record-Route: <sip:p;lr>, <tel:+1>"])
def test_requests_must_be_answerable(line: str) -> None:
    door = Door()
    assert door.receive("INVITE", line) == 400
    assert door.refused() == {"malformed": 1}
    assert door.receive("BYE", line) == 481, "its Contact says nothing"
    for good in (
        "<sip:a@b;x=y>;p=1",
        "sip:b:5060;p=1",
        '"a, <b>" <sips:[::1]>, <sip:%41@b?h=1>',
        "<sip:1_u~(t!)&i=$/c?,/;;*@b>",
    ):
        assert door.receive("INVITE", f"Contact: {good}") == "passed", good


def test_exempt_peers_are_not_asked() -> None:
    door = Door(USERS, f'auth.exempt_peers=["{HOST}"]')
    assert door.receive("INVITE") == "passed"
    assert door.receive("INVITE", host="192.0.2.2") == 401


def test_after_ten_wrong_passwords_403() -> None:
    door = Door(USERS, "sip.max_requests_per_source_s=0")
    for _ in range(10):
        assert door.receive("INVITE") == 401
        assert door.receive("INVITE", credentials(door.header("WWW-Authenticate"), "guess")) == 401
    assert door.receive("INVITE") == 401
    right = credentials(door.header("WWW-Authenticate"), "open sesame")
    assert door.receive("INVITE", right) == 403
    assert door.refused() == {"credentials": 10, "attempts": 1}
    door.clock.advance(6000)
    assert door.receive("INVITE", right) == "passed"


def test_one_phone_with_an_old_password_locks_nobody_else_out() -> None:
    users = USERS.replace("]", ', {username="other", password="long enough"}]')
    door = Door(users, "sip.max_requests_per_source_s=0")
    for _ in range(11):
        door.receive("INVITE")
        door.receive("INVITE", credentials(door.header("WWW-Authenticate"), "guess"))
    door.receive("INVITE")
    assert (
        door.receive("INVITE", credentials(door.header("WWW-Authenticate"), "long enough", username="other"))
        == "passed"
    )


def test_a_right_answer_makes_up_for_the_challenge() -> None:
    door = Door(USERS, "sip.max_requests_per_source_s=1")
    for _ in range(3):
        assert door.receive("INVITE") == 401
        assert door.receive("INVITE", credentials(door.header("WWW-Authenticate"), "open sesame")) == "passed"
        door.clock.advance(1000)


@pytest.mark.parametrize(
    "twice", ["Call-ID: d", "i: d", "From: <sip:z@y>;tag=t", "t: <sip:a@b>;tag=u", "CSeq: 2 INVITE"]
)
def test_what_pjsip_could_read_otherwise_goes_no_further(twice: str) -> None:
    assert Door().receive("INVITE", twice) == 400
    assert Door('sip.allowed_peers=["198.51.100.1"]').receive("INVITE", twice) == "silence"
    door = Door()
    door.library.dialogs.add(("c", "ours", "theirs"))
    assert door.receive("INVITE", twice, to_tag="ours") == 400


def test_a_bare_line_end_goes_no_further() -> None:
    assert Door().receive("INVITE", "X-TTS-Text: a\nCall-ID: d") == 400
    assert Door().receive("INVITE", "X-TTS-Text: a\rCall-ID: d") == 400
    assert Door().refused() == {}


def test_a_folded_and_doubled_authorization_is_found() -> None:
    door = Door(USERS)
    door.receive("INVITE")
    line = credentials(door.header("WWW-Authenticate"), "open sesame").replace(", nonce", ",\r\n nonce")
    other = line.replace('realm="cc-tts"', 'realm="elsewhere"')
    assert door.receive("INVITE", other) == 401
    assert door.receive("INVITE", other, line) == "passed"


@pytest.mark.parametrize("override", [USERS, 'sip.allowed_peers=["192.0.2.1"]'])
def test_the_server_does_not_run_open_when_it_should_be_closed(override: str) -> None:
    SipThread.enter()
    for overrides, closed in (((), False), ((override,), True)):
        policy = InboundPolicy(settings_of(config.load(overrides=overrides)), clock=FakeClock())
        library = cast("CLibrary", FakeLibrary(refuses_modules=True))
        gate = Gate(library, policy=policy, refusal=lambda: None, on_refused=lambda: None, is_ours=bool)
        if closed:
            with pytest.raises(RuntimeError, match="keep nobody out"):
                gate.install_or_say_why()
        else:
            assert not gate.install_or_say_why()


def test_a_request_the_gate_fails_on_passes_only_an_open_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> tuple[str, str]:
        raise ValueError("broken")

    for overrides, wanted in (((), "passed"), ((USERS,), "silence")):
        door = Door(*overrides)
        monkeypatch.setattr(door.library, "message", fail)
        assert door.receive("INVITE") == wanted


def test_our_password_answers_only_the_registrar_and_whom_we_called() -> None:
    door = Door("registration.registrar=pbx.example.com", "registration.username=tts")
    drops = door.library.drops
    assert drops("401", "BYE")
    assert drops("407", "INVITE")
    assert door.refused() == {"bait": 2}
    assert not drops("401", "REGISTER")
    assert not drops("407", "INVITE", call_id="ours")
    assert not drops("401", "BYE", host="127.0.0.1"), "a trusted peer"
    assert not drops("200", "BYE")
    assert drops("401", "BYE", more=["CSeq: 1 REGISTER"]), "PJSIP takes the last CSeq"
    assert drops("", "BYE"), "PJSIP cannot say what it is"
    assert Door().library.on_response is None, "no password, nothing to guard"


def test_passwords_are_not_shown() -> None:
    loaded = config.load(overrides=[USERS])
    assert "open sesame" not in repr(loaded)
    assert msgspec.json.decode(msgspec.json.encode(settings_of(loaded)), type=type(settings_of(loaded))).auth.users
