"""Who listens to a call."""

import pytest

from cc_tts.calls.audio.hub import AudioBlock
from cc_tts.errors import UserAgentUnavailable
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
    heard: dict[str, list[AudioBlock]] = {"a": [], "b": [], "c": []}
    end_a = audio.subscribe(("in",), heard["a"].append)
    end_b = audio.subscribe(("out",), heard["b"].append)
    end_c = audio.subscribe(("in", "out"), heard["c"].append)
    exchange.ua.audio(call_id, FRAME, at_ns=20)
    exchange.ua.audio(call_id, b"", "out", at_ns=21, num_dropped=2)
    assert heard["a"] == [AudioBlock("in", 20, FRAME)]
    assert heard["b"] == [AudioBlock("out", 21, b"", 2)]
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
    heard: list[AudioBlock] = []

    def fail(_block: AudioBlock) -> None:
        raise ValueError

    audio.subscribe(("in",), fail)
    audio.subscribe(("in",), heard.append)
    exchange.ua.audio(call_id, FRAME)
    exchange.ua.audio(call_id, FRAME)
    assert len(heard) == 2


async def test_without_a_ua_process_nobody_can_listen() -> None:
    exchange = Exchange()
    audio = exchange.registry.call(exchange.talking()).audio
    exchange.ua.is_ready = False
    with pytest.raises(UserAgentUnavailable):
        audio.subscribe(("in",), lambda _block: None)
    exchange.ua.is_ready = True
    audio.subscribe(("out",), lambda _block: None)
    assert [directions for _, directions in exchange.ua.commands("listen")] == [("out",)]


async def test_audio_of_a_call_that_is_over_is_nobodys() -> None:
    exchange = Exchange()
    call_id = exchange.talking()
    heard: list[AudioBlock] = []
    end = exchange.registry.call(call_id).audio.subscribe(("in",), heard.append)
    exchange.ua.ended(call_id)
    exchange.ua.audio(call_id, FRAME)
    end()
    assert heard == []
