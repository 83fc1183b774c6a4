"""Who is answered what, by the message filter and its policy, without PJSIP."""

import hashlib
import re

import msgspec
import pytest

from cc_tts.config import load as config
from cc_tts.ua.client import settings_of
from cc_tts.ua.guard.message_filter import METHODS
from tests.fakes.filtered_messages import HOST, MAX_BYTES, Filtered

pytestmark = pytest.mark.unit

USERS = "auth.users=[{username = 'pbx', password = 'open sesame'}]"
LIMIT = "sip.max_requests_per_source_s=1"
NOBODY_TRUSTED = "sip.trusted_peers=[]"
ALLOWED = ", ".join(METHODS)


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
    filtered = Filtered()
    wanted: dict[str, int | str] = {
        "INVITE": "passed",
        "OPTIONS": 200,
        "ACK": "silence",
        "BYE": 481,
        "CANCEL": 481,
        "SUBSCRIBE": 489,
        "REGISTER": 405,
        "TELEPORT": 405,
    }
    assert {method: filtered.receive(method) for method in wanted} == wanted
    assert not filtered.policy.is_closed


def test_overload_is_503_for_invite_and_options() -> None:
    filtered = Filtered(retry_after_s=7)
    assert [filtered.receive(method) for method in ("INVITE", "OPTIONS", "REGISTER")] == [503, 503, 405]
    assert filtered.overloads == 1


def test_options_inside_a_dialog_is_200() -> None:
    filtered = Filtered(retry_after_s=7)
    assert filtered.receive("OPTIONS", to_tag="ours") == 200
    assert "INVITE" in filtered.header("Allow")
    assert filtered.receive("OPTIONS", to_tag="other") == 481
    assert filtered.receive("BYE", to_tag="ours") == "passed"


@pytest.mark.parametrize("to_tag", ["", "ours"])
def test_options_that_requires_what_is_not_there_is_420(to_tag: str) -> None:
    filtered = Filtered()
    assert filtered.receive("OPTIONS", "Require: timer, Foo, 100rel", "Require: bar baz, qux", to_tag=to_tag) == 420
    assert filtered.header("Unsupported") == "foo, qux"
    odd = "Require: " + ",".join(["100rel"] * 30 + ["x" * 65])
    assert filtered.receive("OPTIONS", odd, to_tag=to_tag) == 420
    known = filtered.receive("OPTIONS", "Require: 100rel,TIMER", "Proxy-Require: foo", to_tag=to_tag)
    assert known == 200
    assert filtered.receive("INVITE", "Require: foo", to_tag=to_tag) == "passed", "pjsua says so itself"


def test_strangers_hear_nothing_but_inside_their_dialogs() -> None:
    filtered = Filtered('sip.allowed_peers=["198.51.100.0/24"]')
    assert filtered.policy.is_closed
    assert [filtered.receive(method) for method in ("INVITE", "OPTIONS", "REGISTER", "BYE", "CANCEL")] == [
        "silence"
    ] * 5
    assert filtered.receive("INVITE", to_tag="guessed") == "silence"
    assert filtered.receive("BYE", to_tag="ours") == "passed"
    assert filtered.receive("ACK", to_tag="ours") == "passed"
    assert filtered.receive("INVITE", host="198.51.100.7") == "passed"
    assert filtered.refused() == {"peer": 6}
    assert filtered.refused() == {}, "told once"


def test_too_many_requests_of_one_source() -> None:
    filtered = Filtered(LIMIT)
    assert [filtered.receive("INVITE") for _ in range(6)] == ["passed"] * 2 + [503] * 2 + ["silence"] * 2
    assert filtered.receive("REGISTER") == "silence"
    assert filtered.receive("CANCEL") == 481
    assert filtered.receive("INVITE", host="192.0.2.2") == "passed"
    assert filtered.refused() == {"rate": 5}
    filtered.clock.advance(1000)
    assert [filtered.receive("OPTIONS") for _ in range(3)] == [200, 200, "silence"], "503 would say that we are full"


def test_trusted_peers_and_dialogs_have_no_limit() -> None:
    filtered = Filtered(LIMIT)
    assert {filtered.receive("INVITE", host="127.0.0.1") for _ in range(100)} == {"passed"}
    assert {filtered.receive("INFO", to_tag="ours") for _ in range(100)} == {200}
    assert {Filtered("sip.max_requests_per_source_s=0", NOBODY_TRUSTED).receive("INVITE") for _ in range(100)} == {
        "passed"
    }


def test_a_password_is_asked_for() -> None:
    filtered = Filtered(USERS, retry_after_s=7)
    assert filtered.receive("INVITE") == 401
    assert [name for name, _ in filtered.library.answers[0][1]] == ["WWW-Authenticate"] * 2
    line = credentials(filtered.header("WWW-Authenticate"), "open sesame")
    assert filtered.overloads == 0, "who may not call learns nothing of the load"
    assert filtered.receive("INVITE", line) == 503
    assert filtered.receive("INVITE", line) == 401
    assert "stale=true" in filtered.header("WWW-Authenticate")
    assert filtered.receive("INVITE", "Authorization: Bearer abc") == 401
    assert filtered.refused() == {}, "nobody did anything wrong so far"
    assert filtered.receive("INVITE", "Authorization: Digest") == 400
    assert filtered.receive("INVITE", *[line] * 5) == 400
    assert filtered.refused() == {"malformed": 2}


def test_a_request_that_contradicts_itself_is_refused() -> None:
    filtered = Filtered()
    assert filtered.receive("INVITE", "Content-Length: 1") == 400
    assert "Content-Length" in filtered.library.answers[0][2]
    assert filtered.receive("INFO", "l: 1", to_tag="ours") == 400
    assert filtered.receive("INFO", "l: 0", to_tag="ours") == 200
    assert filtered.refused() == {"malformed": 2}


def test_what_is_not_served_inside_a_dialog() -> None:
    filtered = Filtered()
    wanted: dict[str, int | str] = {
        "INFO": 200,
        "UPDATE": "passed",
        "REFER": 603,
        "NOTIFY": 489,
        "MESSAGE": 405,
        "TELEPORT": 405,
        "SUBSCRIBE": 489,
    }
    assert {method: filtered.receive(method, to_tag="ours") for method in wanted} == wanted
    for method in wanted.keys() - {"UPDATE"}:
        assert filtered.receive(method, to_tag="another") == 481
    assert filtered.receive("MESSAGE", to_tag="ours") == 405
    assert filtered.header("Allow") == ALLOWED


def test_allow_names_refer_while_a_route_takes_it() -> None:
    filtered = Filtered()
    for takes_refer, allowed in ((True, f"{ALLOWED}, REFER"), (False, ALLOWED)):
        filtered.reload(msgspec.structs.replace(filtered.settings, takes_refer=takes_refer))
        for method, status in (("MESSAGE", 405), ("OPTIONS", 200)):
            assert filtered.receive(method) == status
            assert filtered.header("Allow") == allowed
        assert filtered.receive("REFER") == 405, "outside a dialog none is taken"


@pytest.mark.parametrize("uri", ["tel:+1", "TEL:+1", "http://h", "sip", ""])
def test_another_scheme_is_416(uri: str) -> None:
    filtered = Filtered()
    assert [filtered.receive(method, uri=uri) for method in ("INVITE", "OPTIONS", "BYE")] == [416] * 3
    assert filtered.receive("INVITE", uri="SIPS:a@b") == "passed"
    assert Filtered('sip.allowed_peers=["198.51.100.1"]').receive("INVITE", uri=uri) == "silence"


LONG = "a" * 243
"""With ``_sips._tcp.`` before it PJSIP asserts that a name is shorter."""


@pytest.mark.parametrize("name", ["Contact", "Record-Route"])
def test_a_host_can_be_looked_up(name: str) -> None:
    filtered = Filtered()
    for uri in (f"sip:a@{LONG}", f"sip:a@b;maddr={LONG}", f"sip:a@b;%6dADDR = {LONG}", f'sip:a@b;maddr="a;{LONG}"'):
        assert filtered.receive("INVITE", f"{name}: <{uri}>") == 400, uri
    for transport in ("transport=sctp", "tr%61nsport=LOOP", "x;transport = dtls", 'transport="sctp"'):
        assert filtered.receive("UPDATE", f"{name}: <sip:a@b;{transport}>", to_tag="ours") == 400, transport
    assert filtered.receive("UPDATE", f"{name}: <sip:a@b;transport=ws>", to_tag="ours") == "passed"
    assert filtered.receive("INVITE", f"{name}: <sip:a@{LONG[1:]};maddr={LONG[1:]}>") == "passed"


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS", "BYE"])
def test_no_answer_is_sent_elsewhere_than_to_the_source(method: str) -> None:
    filtered = Filtered()
    for where in (LONG, "192.0.2.99", f'"{HOST};{LONG}"', f"{HOST};maddr={LONG}"):
        for line in (f"Via: SIP/2.0/UDP h;branch=z9hG4bK1;maddr={where}", f"v: SIP/2.0/UDP h ; %6Daddr= {where};rport"):
            assert filtered.receive(method, line) == "silence", line
    assert filtered.receive(method, f"Via: SIP/2.0/UDP h;maddr={HOST};branch=z9hG4bK1") != "silence"


@pytest.mark.parametrize("line", ["Contact: <tel:+1>", "m: *", "Contact:", "Record-Route: <sip:p;lr>, <tel:+1>"])
def test_requests_must_be_answerable(line: str) -> None:
    filtered = Filtered()
    assert filtered.receive("INVITE", line) == 400
    assert filtered.refused() == {"malformed": 1}
    assert filtered.receive("BYE", line) == 481, "its Contact says nothing"
    for good in (
        "<sip:a@b;x=y>;p=1",
        "sip:b:5060;p=1",
        '"a, <b>" <sips:[::1]>, <sip:%41@b?h=1>',
        "<sip:1_u~(t!)&i=$/c?,/;;*@b>",
    ):
        assert filtered.receive("INVITE", f"Contact: {good}", "Record-Route: <sip:p;lr>") == "passed", good


@pytest.mark.parametrize(
    "where",
    [
        "<sip:a@h;transport=foo>",
        "<sip:a@h;transport=tls>",
        "<sips:a@h>",
        "<sip:a@[2001:db8::1]>",
        '"a, b" <sip:h;maddr=[::1]>',
    ],
)
def test_requests_in_the_dialog_must_have_a_way(where: str) -> None:
    filtered = Filtered()
    contact, proxy = f"Contact: {where}", "Record-Route: <sip:p;lr;transport=TCP>"
    assert filtered.receive("INVITE", contact) == 400
    assert filtered.receive("INVITE", "Contact: <sip:a@h>", f"Record-Route: {where}", proxy) == 400
    assert filtered.refused() == {"malformed": 2}
    assert filtered.receive("INVITE", contact, proxy) == "passed", "the proxy has a way"
    assert filtered.receive("UPDATE", contact, to_tag="ours") != 400, "the dialog may go by a proxy"
    served = Filtered('sip.transports=["udp", "tcp", "tls"]', 'tls.certificate_file="c"', 'tls.private_key_file="k"')
    assert served.receive("INVITE", "Contact: <sips:a@h;transport=tls>") == "passed"


def test_exempt_peers_are_not_asked() -> None:
    filtered = Filtered(USERS, LIMIT, 'auth.exempt_peers=["192.0.2.2"]')
    assert filtered.receive("INVITE", host="192.0.2.2") == "passed"
    for _ in range(3):
        assert filtered.receive("INVITE") == 401
        right = credentials(filtered.header("WWW-Authenticate"), "open sesame")
        assert filtered.receive("INVITE", right) == "passed", "a right answer makes up for the challenge"
        filtered.clock.advance(1000)


def test_after_ten_wrong_passwords_403() -> None:
    filtered = Filtered(USERS, "sip.max_requests_per_source_s=0")
    for _ in range(10):
        assert filtered.receive("INVITE") == 401
        assert filtered.receive("INVITE", credentials(filtered.header("WWW-Authenticate"), "guess")) == 401
    assert filtered.receive("INVITE") == 401
    right = credentials(filtered.header("WWW-Authenticate"), "open sesame")
    assert filtered.receive("INVITE", right) == 403
    assert filtered.refused() == {"credentials": 10, "attempts": 1}
    filtered.clock.advance(6000)
    assert filtered.receive("INVITE", right) == "passed"


def test_one_phone_with_an_old_password_locks_nobody_else_out() -> None:
    users = USERS.replace("]", ', {username="other", password="long enough"}]')
    filtered = Filtered(users, "sip.max_requests_per_source_s=0")
    for _ in range(11):
        filtered.receive("INVITE")
        filtered.receive("INVITE", credentials(filtered.header("WWW-Authenticate"), "guess"))
    filtered.receive("INVITE")
    assert (
        filtered.receive("INVITE", credentials(filtered.header("WWW-Authenticate"), "long enough", username="other"))
        == "passed"
    )


@pytest.mark.parametrize(
    "twice",
    ["Call-ID: d", "i: d", "From: <sip:z@y>;tag=t", "t: <sip:a@b>;tag=u", "CSeq: 2 INVITE", "X: a\ni: d", "X: a\ri: d"],
)
def test_what_pjsip_could_read_otherwise_goes_no_further(twice: str) -> None:
    assert Filtered().receive("INVITE", twice) == 400
    assert Filtered('sip.allowed_peers=["198.51.100.1"]').receive("INVITE", twice) == "silence"
    filtered = Filtered()
    assert filtered.receive("INVITE", twice, to_tag="ours") == 400


def test_a_folded_and_doubled_authorization_is_found() -> None:
    filtered = Filtered(USERS)
    filtered.receive("INVITE")
    line = credentials(filtered.header("WWW-Authenticate"), "open sesame").replace(", nonce", ",\r\n nonce")
    other = line.replace('realm="cc-tts"', 'realm="elsewhere"')
    assert filtered.receive("INVITE", other) == 401
    assert filtered.receive("INVITE", other, line) == "passed"


@pytest.mark.parametrize("text", ["a", "\u4f60"])
def test_a_request_that_fills_the_buffer_was_cut(text: str) -> None:
    filtered = Filtered()
    room = MAX_BYTES - 120  # for the other lines
    fits, exceeds = room // len(text.encode()), MAX_BYTES // len(text.encode())
    assert filtered.receive("INVITE", "X-TTS-Text: " + text * fits) == "passed"
    assert filtered.receive("INVITE", "X-TTS-Text: " + text * exceeds) == 513
    assert filtered.refused() == {"too_long": 1}


def test_a_stranger_gets_no_answer_to_what_is_too_long() -> None:
    filtered = Filtered('sip.allowed_peers=["192.0.2.7"]')
    assert [filtered.policy.on_dropped("too_long", host) for host in ("192.0.2.7", "192.0.2.8")] == [True, False]
    assert filtered.refused() == {"too_long": 2}
    assert filtered.receive("INVITE", "X: " + "a" * MAX_BYTES, host="192.0.2.8") == "silence"


def test_a_source_gets_no_more_answers_to_what_cannot_be_read_than_it_may_send_requests() -> None:
    filtered = Filtered("sip.max_requests_per_source_s=2")
    assert [filtered.policy.on_dropped("malformed", "192.0.2.7") for _ in range(6)][::5] == [True, False]
    assert filtered.policy.on_dropped("malformed", "192.0.2.8")


def test_the_server_does_not_run_without_the_filter() -> None:
    with pytest.raises(RuntimeError):
        Filtered(refuses_modules=True)


@pytest.mark.parametrize(("overrides", "wanted"), [((), "passed"), ((USERS,), "silence")])
def test_a_request_the_policy_fails_on_passes_only_an_open_one(
    monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], wanted: str
) -> None:
    def fail(*_arguments: object, **_more: object) -> None:
        raise ValueError("broken")

    for judge in ("on_request", "on_invite"):
        filtered = Filtered(*overrides)
        monkeypatch.setattr(filtered.policy, judge, fail)
        assert filtered.receive("INVITE") == wanted


def test_our_password_answers_only_the_registrar_and_whom_we_called() -> None:
    filtered = Filtered("registration.registrar=pbx.example.com", "registration.username=tts")
    filtered.leg.is_incoming = True
    drops = filtered.drops
    assert drops("401", "BYE")
    assert drops("407", "INVITE")
    assert filtered.refused() == {"unsolicited_challenge": 2}
    assert not drops("401", "REGISTER")
    assert not drops("407", "INVITE", call_id="ours")
    assert not drops("401", "BYE", host="127.0.0.1"), "a trusted peer"
    assert not drops("200", "BYE")
    assert drops("401", "BYE", "CSeq: 1 REGISTER"), "PJSIP takes the last CSeq"
    filtered.library.method = ""
    assert drops("200", "BYE"), "PJSIP cannot say what it is"
    assert not Filtered().drops("401", "BYE"), "no password, nothing to guard"


def test_passwords_are_not_shown() -> None:
    loaded = config.load(overrides=[USERS])
    assert "open sesame" not in repr(loaded)
    assert msgspec.json.decode(
        msgspec.json.encode(settings_of(loaded)[0]), type=type(settings_of(loaded)[0])
    ).auth.users
