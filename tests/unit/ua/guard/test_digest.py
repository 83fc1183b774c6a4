"""Digest authentication: known responses, challenges, what an answer is worth, and the parser against anything."""

import hashlib
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.config.schema import AuthConfig, DigestAlgorithm, RegistrationConfig, UserConfig
from cc_tts.ua.guard import digest as module
from cc_tts.ua.guard.digest import (
    MAX_CREDENTIALS_CHARS,
    Credentials,
    DigestGuard,
    DigestResult,
    MalformedCredentials,
    answer_to,
    digest,
    parse_credentials,
    quoted,
    user_hash,
)
from tests.fakes.fake_line import FakeClock
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit

SOURCE = "192.0.2.1"
PASSWORD = "Circle of Life"
LINE = (
    'Digest username="bob", realm="r", nonce="n", uri="sip:a@b", response="AB12", cnonce="c", qop=auth, nc=0000000a, '
    "algorithm=md5, opaque=x"
)


MUFASA = (
    'Digest username="Mufasa", realm="http-auth@example.org", uri="/dir/index.html", algorithm={}, '
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", nc=00000001, '
    'cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", qop=auth, response="{}"'
)
OF_RFC_2617 = (
    'Digest username="Mufasa", realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", '
    'uri="/dir/index.html", qop=auth, nc=00000001, cnonce="0a4f113b", response="6629fae49393a05397450978507c4ef1"'
)


def read(line: str) -> Credentials:
    found = parse_credentials(line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "password"),
    [
        (MUFASA.format("MD5", "8ca523f5e9506fed4657c9700eebdbec"), PASSWORD),
        (MUFASA.format("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"), PASSWORD),
        (OF_RFC_2617, "Circle Of Life"),
    ],
)
def test_the_examples_of_rfc_7616_section_3_9_1_and_of_rfc_2617_section_3_5(line: str, password: str) -> None:
    answer = read(line)
    assert digest(answer, user_hash(answer.algorithm, "Mufasa", answer.realm, password), "GET") == answer.response


def test_credentials_are_read() -> None:
    assert parse_credentials(LINE) == Credentials(
        username="bob",
        realm="r",
        nonce="n",
        uri="sip:a@b",
        response="ab12",
        cnonce="c",
        nc="0000000a",
        algorithm="MD5",
    )
    assert parse_credentials("Bearer abc") is parse_credentials("") is None


@pytest.mark.parametrize(
    "value",
    [
        "Digest",
        "Digest ,",
        "Digest username",
        'Digest username="bob',
        LINE + ",",
        LINE + " x=1",
        LINE + ', username="eve"',
        LINE + ', USERNAME="eve"',
        LINE.replace("qop=auth", "qop=auth-int"),
        LINE.replace(", qop=auth", ""),
        LINE.replace("nc=0000000a", "nc=a"),
        LINE.replace("nc=0000000a", "nc=0000000g"),
        LINE.replace('username="bob"', 'username=""'),
        LINE.replace('cnonce="c", ', ""),
        LINE.replace("bob", "b\nob"),
        LINE.replace("bob", "b\x00ob"),
        LINE + "," + ",".join(f"p{number}=1" for number in range(40)),
        LINE + ', more="' + "x" * MAX_CREDENTIALS_CHARS + '"',
    ],
)
def test_what_cannot_be_read_is_malformed(value: str) -> None:
    with pytest.raises(MalformedCredentials):
        parse_credentials(value)


@given(st.text(max_size=400))
def test_any_text_is_read_or_malformed(text: str) -> None:
    for value in (text, "Digest " + text):
        said = ""
        try:
            found = parse_credentials(value)
        except MalformedCredentials as error:
            said = str(error)
        else:
            assert found is None or found.username
        assert said.isascii(), "it goes into a reason phrase"


@given(st.lists(st.sampled_from((*LINE.split(", "), ",", '"', "\\", "=", " ", "nc=00000001")), max_size=30))
def test_any_pieces_are_read_or_malformed(pieces: list[str]) -> None:
    try:
        found = parse_credentials("Digest " + ", ".join(pieces).removeprefix("Digest "))
    except MalformedCredentials:
        return
    assert found is None or found.nc in ("0000000a", "00000001")


@given(st.text(st.characters(min_codepoint=32, exclude_characters="\x7f"), min_size=1, max_size=100))
def test_what_is_quoted_is_read_back(username: str) -> None:
    assert read(LINE.replace('"bob"', quoted(username))).username == username


class Caller:
    def __init__(self, algorithms: tuple[DigestAlgorithm, ...] = ("SHA-256", "MD5")) -> None:
        self.clock = FakeClock()
        auth = AuthConfig(
            realm='the "realm"',
            users=(UserConfig("bob", PASSWORD), UserConfig("jürgen", "pässword")),
            algorithms=algorithms,
            nonce_lifetime_s=60,
        )
        self.guard = DigestGuard(auth, self.clock)

    def nonce(self, source: str = SOURCE) -> str:
        match = re.search(r'nonce="([^"]+)"', self.guard.challenges(source, stale=False)[0][1])
        assert match is not None
        return match[1]

    def answer(
        self,
        nonce: str,
        *,
        username: str = "bob",
        password: str = PASSWORD,
        nc: int = 1,
        algorithm: str = "SHA-256",
        realm: str = 'the "realm"',
        source: str = SOURCE,
        method: str = "INVITE",
    ) -> DigestResult:
        count = f"{nc:08x}"
        hashed = algorithm if algorithm in ("SHA-256", "MD5") else "MD5"
        credentials = Credentials(
            username=username,
            realm=realm,
            nonce=nonce,
            uri="sip:x@y",
            response="",
            cnonce="c",
            nc=count,
            algorithm=hashed,
        )
        response = digest(credentials, user_hash(hashed, username, realm, password), "INVITE")
        credentials = replace(credentials, response=response, algorithm=algorithm)
        return self.guard.verify(credentials, method=method, source=source)


def test_challenges_offer_the_stronger_algorithm_first() -> None:
    (name, sha), (_, md5) = Caller().guard.challenges(SOURCE, stale=True)
    assert name == "WWW-Authenticate"
    assert re.fullmatch(
        r'Digest realm="the \\"realm\\"", nonce="[0-9a-f]{64}", algorithm=SHA-256, qop="auth", stale=true', sha
    )
    assert md5 == sha.replace("SHA-256", "MD5")
    assert len(Caller(("MD5",)).guard.challenges(SOURCE, stale=False)) == 1


def test_a_right_answer_counts_once() -> None:
    caller = Caller()
    nonce = caller.nonce()
    assert caller.answer(nonce) is DigestResult.VALID
    assert caller.answer(nonce) is DigestResult.STALE
    assert caller.answer(nonce, nc=3, algorithm="MD5") is DigestResult.VALID
    assert caller.answer(nonce, nc=2) is DigestResult.STALE
    assert caller.answer(caller.nonce(), username="jürgen", password="pässword") is DigestResult.VALID


def test_wrong_answers_to_a_challenge_of_ours() -> None:
    caller = Caller()
    nonce = caller.nonce()
    assert caller.answer(nonce, password="guess") is DigestResult.WRONG
    assert (
        caller.answer(nonce, username="nobody")
        is caller.answer(nonce, username="nobody", password="")
        is DigestResult.WRONG
    )
    assert caller.answer(nonce, method="BYE") is DigestResult.WRONG
    assert caller.answer(nonce) is DigestResult.VALID, "a wrong answer does not use the count up"


def test_wrong_answers_take_no_memory() -> None:
    caller = Caller()
    before = held_bytes(caller.guard)
    for _ in range(1000):
        assert caller.answer(caller.nonce(), password="guess") is DigestResult.WRONG
    assert held_bytes(caller.guard) < 1.5 * before


def test_other_realms_and_algorithms_are_foreign() -> None:
    caller = Caller(("MD5",))
    assert caller.answer(caller.nonce(), algorithm="SHA-256") is DigestResult.FOREIGN
    assert caller.answer(caller.nonce(), algorithm="MD5-sess") is DigestResult.FOREIGN
    assert caller.answer(caller.nonce(), algorithm="MD5", realm="pbx") is DigestResult.FOREIGN


def test_nonces_that_are_not_ours_say_nothing_about_the_password() -> None:
    caller = Caller()
    good = caller.nonce()
    for nonce in ("", "abc", good[:-1], good + "0", "0" * len(good), "é" * len(good), Caller().nonce()):
        assert caller.answer(nonce, password="guess") is DigestResult.STALE
        assert caller.answer(nonce) is DigestResult.STALE
    assert caller.answer(good, source="192.0.2.2") is DigestResult.STALE


def test_a_challenge_expires() -> None:
    caller = Caller()
    nonce = caller.nonce()
    caller.clock.advance(60_000)
    assert caller.answer(nonce) is DigestResult.VALID
    caller.clock.advance(1)
    assert caller.answer(nonce, nc=2) is DigestResult.STALE
    assert caller.answer(nonce, nc=3, password="guess") is DigestResult.WRONG


def test_the_table_is_bounded_and_what_it_forgets_is_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NONCES", 3)
    caller = Caller()

    def use() -> str:
        nonce = caller.nonce()
        assert caller.answer(nonce) is DigestResult.VALID
        caller.clock.advance(1)
        return nonce

    nonces = [use() for _ in range(5)]
    few = held_bytes(caller.guard)
    nonces += [use() for _ in range(100)]
    assert held_bytes(caller.guard) < 1.5 * few
    assert [caller.answer(nonce, nc=1) for nonce in nonces] == [DigestResult.STALE] * 105, (
        "no replay by making it forget"
    )
    assert caller.answer(nonces[-1], nc=2) is DigestResult.VALID


CHALLENGE = (
    'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={}, nonce="{}", opaque="FQhe/qaU925k"'
)
LOGIN = RegistrationConfig(username="Mufasa", password=PASSWORD, realm="*")
ASKED = {"method": "GET", "uri": "/dir/index.html", "cnonce": "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"}
NONCE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v"


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_our_own_answer_is_that_of_rfc_7616_section_3_9_1(algorithm: str, response: str) -> None:
    answer = answer_to(CHALLENGE.format(algorithm, NONCE), LOGIN, **ASKED)
    assert answer is not None
    assert (read(answer).response, read(answer).algorithm) == (response, algorithm)
    assert 'opaque="FQhe/qaU925k"' in answer


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def test_a_challenge_without_qop_is_answered_as_before_rfc_2617() -> None:
    answer = answer_to('Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093"', LOGIN, **ASKED)
    assert answer is not None
    assert "qop" not in answer
    first, second = (md5(text) for text in (f"Mufasa:testrealm@host.com:{PASSWORD}", "GET:/dir/index.html"))
    expected = md5(f"{first}:dcd98b7102dd2f0e8b11d0f600bfb0c093:{second}")
    assert f'response="{expected}"' in answer


@pytest.mark.parametrize(
    "challenge",
    [
        "Basic realm=x",
        'Digest realm="x"',
        'Digest realm="x", nonce="n", qop="auth-int"',
        'Digest realm="x", nonce="n", algorithm=MD5-sess',
        'Digest realm="x", nonce="n',
        f'Digest realm="x", nonce="{"n" * MAX_CREDENTIALS_CHARS}"',
    ],
)
def test_what_cannot_be_answered_is_not(challenge: str) -> None:
    assert answer_to(challenge, LOGIN, **ASKED) is None


def test_a_password_is_for_its_realm() -> None:
    login = replace(LOGIN, realm="pbx")
    assert answer_to('Digest realm="other", nonce="n"', login, **ASKED) is None
    assert answer_to('Digest realm="pbx", nonce="n"', login, **ASKED) is not None
