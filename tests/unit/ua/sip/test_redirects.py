"""Which redirections are followed."""

import pytest

from cc_tts.ua.sip.redirects import MAX_REDIRECTS, Redirects

pytestmark = pytest.mark.unit


def redirects(*, refused: str = "") -> Redirects:
    return Redirects("sip:bob@h:1", lambda uri: not refused or refused not in uri)


def test_what_a_response_named_is_tried_once() -> None:
    calls = redirects()
    assert calls.follow('"B" <sip:bob@h>', ["sip:bob@h:2", "sip:bob@h:3"])
    assert calls.follow("sip:bob@h", [])
    assert not calls.follow("sip:bob@h", []), "both were tried"
    assert calls.follow("sip:bob@h", ["SIP:bob@H:4;transport=tcp"])
    assert not calls.follow("sip:bob@h", ["sip:bob@h:2"])


def test_nobody_is_called_twice_nor_without_being_named() -> None:
    assert not redirects().follow("sip:bob@h", ["sip:bob@h:1"])
    assert not redirects().follow("sip:eve@h", ["sip:carol@h:2"])
    assert not redirects().follow("sip:bob@h", [])


def test_where_pjsip_could_mean_one_that_is_not_fit_none_is_tried() -> None:
    calls = redirects(refused="?")
    assert not calls.follow("sip:bob@h", ["sip:bob@h:2", "sip:bob@h:3?X-A=1"])
    assert calls.follow("sip:carol@h", ["sip:carol@h:2"])


def test_there_is_a_limit() -> None:
    calls = redirects()
    followed = [calls.follow("sip:bob@h", [f"sip:bob@h:{port}"]) for port in range(2, 12)]
    assert followed == [True] * MAX_REDIRECTS + [False] * (10 - MAX_REDIRECTS)
