"""Who listens to a call."""

import pytest

from cc_tts.errors import UserAgentUnavailable
from cc_tts.ua.messages import CallAudio
from tests.fakes.exchange import Exchange

pytestmark = pytest.mark.unit

FRAME = b"\x01\x00" * 160


async def test_nothing_is_asked_for_until_somebody_listens() -> None:
    exchange = Exchange()
    exchange.talking()
    assert exchange.ua.commands("listen") == []


async def test_the_union_of_what_is_wanted_is_asked_for() -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    audio = exchange.registry.call(call_id).audio
    heard: dict[str, list[tuple[CallAudio, bytes]]] = {"a": [], "b": [], "c": []}
    end_a = audio.subscribe(("in",), lambda *audio: heard["a"].append(audio))
    end_b = audio.subscribe(("out",), lambda *audio: heard["b"].append(audio))
    end_c = audio.subscribe(("in", "out"), lambda *audio: heard["c"].append(audio))
    exchange.ua.audio(call_id, FRAME, at_ns=20)
    exchange.ua.audio(call_id, b"", "out", at_ns=21, num_dropped=2)
    assert heard["a"] == [(CallAudio(call_id, "in", 20), FRAME)]
    assert heard["b"] == [(CallAudio(call_id, "out", 21, 2), b"")]
    assert heard["c"] == [*heard["a"], *heard["b"]]
    assert exchange.sample("cctts_call_audio_dropped_frames_total", where="ua") == 2
    end_c()
    end_a()
    end_a()
    end_b()
    asked = [directions for _, directions in exchange.ua.commands("listen")]
    assert asked == [("in",), ("in", "out"), ("out",), ()]


async def test_one_that_fails_is_left_out() -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    audio = exchange.registry.call(call_id).audio
    heard: list[tuple[CallAudio, bytes]] = []

    def fail(_audio: CallAudio, _pcm: bytes) -> None:
        raise ValueError

    audio.subscribe(("in", "out"), fail)
    audio.subscribe(("in",), lambda *audio: heard.append(audio))
    exchange.ua.audio(call_id, FRAME)
    exchange.ua.audio(call_id, FRAME)
    assert len(heard) == 2
    asked = [directions for _, directions in exchange.ua.commands("listen")]
    assert asked == [("in", "out"), ("in",)], "nobody else wants what we send"


async def test_without_a_ua_process_nobody_can_listen() -> None:
    exchange = Exchange()
    audio = exchange.registry.call(exchange.talking()).audio
    exchange.ua.is_ready = False
    with pytest.raises(UserAgentUnavailable):
        audio.subscribe(("in",), lambda _audio, _pcm: None)
    exchange.ua.is_ready = True
    audio.subscribe(("out",), lambda _audio, _pcm: None)
    assert [directions for _, directions in exchange.ua.commands("listen")] == [("out",)]


async def test_audio_of_a_call_that_is_over_is_nobodys() -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    heard: list[tuple[CallAudio, bytes]] = []
    end = exchange.registry.call(call_id).audio.subscribe(("in",), lambda *audio: heard.append(audio))
    exchange.ua.ended(call_id)
    exchange.ua.audio(call_id, FRAME)
    end()
    assert heard == []
